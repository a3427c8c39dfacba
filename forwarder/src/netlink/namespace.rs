//! Network namespaces for tests. They have no name and end with the last thing that holds them:
//! nothing stays behind, however a test ends.

use std::{
    fs::File,
    future::Future,
    io::Write,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    process::{Child, Command},
};

use nix::sched::{CloneFlags, setns, unshare};

pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// `None` without root: the test is skipped, or fails where `FORWARDER_REQUIRE_ALL=1`.
    pub(crate) fn new() -> Option<Self> {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).map(|()| File::open("/proc/thread-self/ns/net"))
        });
        match made.join().expect("no panic") {
            Ok(file) => {
                let namespace = Self(file.expect("/proc is mounted").into());
                namespace.sh("ip link set lo up");
                Some(namespace)
            }
            Err(error) => {
                skip(&format!("needs a network namespace, and so root: {error}"));
                None
            }
        }
    }

    /// A path for `ip link … netns PATH`.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs commands, one a line, in this namespace.
    pub(crate) fn sh(&self, script: &str) -> String {
        self.enter(|| {
            let output = Command::new("sh").args(["-ec", script]).output().expect("sh starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script}\n{errors}");
            String::from_utf8(output.stdout).expect("UTF-8")
        })
    }

    /// Whether a command is there; where not, the test is skipped, as by [`Self::new`].
    pub(crate) fn has(command: &str) -> bool {
        let found = Command::new("sh").args(["-c", &format!("command -v {command}")]).output();
        let is_there = found.is_ok_and(|output| output.status.success());
        if !is_there {
            skip(&format!("needs the command {command}"));
        }
        is_there
    }

    /// Has `nft` take these rules.
    pub(crate) fn nft(&self, rules: &str) {
        self.sh(&format!("nft -f - <<'END'\n{rules}\nEND"));
    }

    /// Starts a process in this namespace.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        self.enter(|| command.spawn().expect("it starts"))
    }

    /// Runs async code in this namespace, on a runtime of its own.
    pub(crate) fn run<F: Future>(&self, code: impl FnOnce() -> F + Send) -> F::Output
    where
        F::Output: Send,
    {
        self.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(code())
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn enter<T: Send>(&self, code: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).expect("root");
                code()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Says so past libtest's capture.
fn skip(reason: &str) {
    const REQUIRE_ALL: &str = "FORWARDER_REQUIRE_ALL";
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let allowed = std::env::var_os(REQUIRE_ALL).is_none_or(|value| value != "1");
    assert!(allowed, "{test} cannot run, and {REQUIRE_ALL} forbids to skip it: {reason}");
    // Where stderr is gone there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("SKIP {test}: {reason}\n").as_bytes());
}

//! Network namespaces for tests. They have no name and end with the last thing that holds them:
//! nothing stays behind, however a test ends.

use std::{
    fs::File,
    future::Future,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    process::{Child, Command},
};

use nix::sched::{CloneFlags, setns, unshare};

pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// `None`, and the reason printed, without root; a panic where
    /// `FORWARDER_REQUIRE_ALL=1` forbids to skip.
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
                let required = std::env::var_os("FORWARDER_REQUIRE_ALL").is_some_and(|v| v == "1");
                assert!(!required, "cannot make a network namespace: {error}: run as root");
                eprintln!("SKIP: cannot make a network namespace: {error}: run as root");
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

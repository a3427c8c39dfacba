//! Network namespaces without names. One lives as long as something refers to it: the descriptor
//! that [`Namespace`] holds, or a process or socket in it. Nothing is left, not even after kill -9.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{fs::MetadataExt, process::CommandExt},
    },
    panic,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::Arc,
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// A new one, with nothing in it but a `lo` that is down.
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::current()
        })
    }

    /// The one that this thread is in.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(File::open(path)?)))
    }

    /// Does the work inside, on a thread of its own: a namespace belongs to a thread, and a thread
    /// that has entered one is of no use to anybody else. Only the network changes, so that
    /// /sys/fs/bpf stays the machine's; but so does /sys/class/net: ask netlink instead.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            self.enter().expect("a namespace can be entered by whoever made it");
            work()
        })
    }

    /// A command whose process will be inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespace = self.clone();
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(move || namespace.enter()) };
        command
    }

    /// Moves this thread inside, for good.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }

    /// A path by which this machine's other processes can refer to it while we live.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd()).into()
    }

    /// Two of the same number are the same namespace.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.ino())
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

//! The forwarder, called by those who may not do what it needs.

use std::{
    fs::File, os::fd::AsRawFd, os::unix::process::CommandExt, panic, thread, time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::signal::Signal,
    unistd::{Gid, Uid, setgid, setgroups, setuid},
};

use crate::{
    daemon::Forwarder,
    process::{Finished, Process},
};

const PATIENCE: Duration = Duration::from_secs(20);
pub const NOBODY: u32 = 65534;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A user without any rights.
    Nobody,
    /// Root as containers have it: it may not load BPF programs.
    Container,
}

impl Caller {
    /// Runs a command of a forwarder to its end.
    pub fn call(self, forwarder: &Forwarder, arguments: &str) -> Result<Finished> {
        let inner = forwarder.command(arguments);
        // Not everybody may look into the folder where it was built; what is open can be run.
        let file = File::open(inner.get_program()).context("open the forwarder's binary")?;
        let mut command = forwarder.host().command(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command.args(inner.get_args());
        command.env("FORWARDER_RUN_DIR", forwarder.run_dir());
        // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(move || Ok(self.become_it()?)) };
        Process::spawn(command, Signal::SIGTERM)?.finish(PATIENCE)
    }

    fn become_it(self) -> nix::Result<()> {
        match self {
            Self::Nobody => {
                setgroups(&[])?;
                setgid(Gid::from_raw(NOBODY))?;
                setuid(Uid::from_raw(NOBODY))
            }
            Self::Container => {
                // CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF: `exec` will not give them.
                for capability in [21_u64, 38, 39] {
                    // SAFETY: this takes two numbers, and no memory.
                    Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability) })?;
                }
                Ok(())
            }
        }
    }
}

/// Does the work as a user without any rights, in root's group, on a thread of its own: the
/// system calls change the thread that makes them, where the functions of libc change all.
pub fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let become_nobody = || {
        let (user, group) = (NOBODY, 0);
        // SAFETY: this takes numbers, and no memory.
        Errno::result(unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) })?;
        // SAFETY: likewise.
        Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) })
    };
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_nobody().expect("root may become anybody");
            work()
        });
        thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

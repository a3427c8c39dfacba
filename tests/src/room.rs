//! The room: PID and mount namespaces in which the demo and the lab's shell live. When its first
//! process is gone the kernel ends all others, and with them go the network namespaces, the file
//! systems mounted here, and every BPF program that was pinned in one. No cleaning up is needed,
//! and none can be missed.

use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::{Context, Result, ensure};
use forwarder_tests::{host::Host, process};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{SigHandler, Signal, signal},
    unistd::geteuid,
};

/// What Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    Ends,
    IsForTheCommand,
}

/// A file system of the room's own, over a folder that every machine has.
const SCRATCH: &str = "/dev/shm";

/// Starts this program once more, as the first process of a room, and ends as that does.
pub(crate) fn enter(interrupt: Interrupt) -> Result<ExitCode> {
    ensure!(geteuid().is_root(), "needs root: put sudo before the same command");
    unshare(CloneFlags::CLONE_NEWPID).context("make a PID namespace")?;
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.arg("--inside").args(arguments).env("TMPDIR", SCRATCH);
    process::die_with_us(&mut command, Signal::SIGKILL);
    let mut child = command.spawn().context("start the room's first process")?;
    if interrupt == Interrupt::IsForTheCommand {
        // SAFETY: to ignore a signal needs no handler that could do something wrong.
        unsafe { signal(Signal::SIGINT, SigHandler::SigIgn) }?;
    }
    Ok(exit_code(child.wait()?))
}

/// First thing inside: shows the room's processes, and no others.
pub(crate) fn furnish() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)
        .context("make a mount namespace and one for the host name")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("keep mounts to ourselves")?;
    mount_over("proc", "/proc")?;
    mount_over("tmpfs", SCRATCH)
}

/// Shows the name and the interfaces of this host, as programs on it expect, and no pin but theirs.
pub(crate) fn show(host: &Host) -> Result<()> {
    fs::write("/proc/sys/kernel/hostname", &host.name)?;
    // What /sys/class/net lists is decided by the network that sysfs is mounted from.
    host.run(|| mount_over("sysfs", "/sys"))?;
    mount_over("bpf", "/sys/fs/bpf")
}

/// As shells say it: 128 + the signal, where one ended the process.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = process::code(status);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn mount_over(kind: &str, folder: &str) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some(kind), Path::new(folder), Some(kind), flags, None::<&str>)
        .with_context(|| format!("mount {kind} on {folder}"))
}

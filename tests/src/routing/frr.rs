//! FRR: a process for the kernel's table (zebra) and one for each protocol.

use std::{
    ffi::CString, fs, io, os::unix::process::CommandExt, path::Path, process::Command, thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::Signal,
};
use tempfile::TempDir;

use super::{command, find};
use crate::{host::Host, process::Process, wait::wait_until};

const START: Duration = Duration::from_secs(10);
/// The group of those who may use its terminals, which the package makes. Its daemons do not start
/// without.
const GROUP: &str = "frrvty";

/// When dropped its daemons are killed: what they have written to the kernel stays there.
#[derive(Debug)]
pub struct Frr {
    // Dropped in this order: zebra would take away the routes of a protocol that has ended.
    zebra: Process,
    protocols: Vec<Process>,
    folder: TempDir,
}

impl Frr {
    /// zebra, and these daemons with their configurations, once each takes commands.
    pub fn start(host: &Host, protocols: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for FRR")?;
        fs::write(folder.path().join("group"), groups()?)?;
        let zebra = daemon(host, folder.path(), "zebra", "log stdout informational\n")?;
        let mut frr = Self { protocols: Vec::new(), zebra, folder };
        for (name, config) in protocols {
            let process = daemon(host, frr.folder.path(), name, config)?;
            frr.protocols.push(process);
        }
        Ok(frr)
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        if thread::panicking() {
            for process in [&self.zebra].into_iter().chain(&self.protocols) {
                println!("frr said:\n{}{}", process.stdout(), process.stderr());
            }
        }
    }
}

fn daemon(host: &Host, folder: &Path, name: &str, config: &str) -> Result<Process> {
    let file = folder.join(format!("{name}.conf"));
    fs::write(&file, config)?;
    let program = find(name).with_context(|| format!("{name} is not there"))?;
    let mut command = command(host, &program);
    // As root: whoever changes the user loses the signal that ends it with us.
    command.args(["-u", "root", "-g", "root", "-P", "0"]);
    command.arg("-f").arg(file).arg("--vty_socket").arg(folder);
    command.arg("-z").arg(folder.join("zserv.api"));
    command.arg("-i").arg(folder.join(format!("{name}.pid")));
    furnish(&mut command, &folder.join("group"))?;
    let mut process = Process::spawn(command, Signal::SIGKILL)?;
    let terminal = folder.join(format!("{name}.vty"));
    wait_until(&format!("{name} to take commands"), START, || {
        if let Some(ended) = process.ended()? {
            bail!("{name}: {}: {}{}", ended.status, ended.stdout, ended.stderr);
        }
        Ok(terminal.exists().then_some(()))
    })?;
    Ok(process)
}

/// The machine's groups, and FRR's with root in it.
fn groups() -> Result<String> {
    let groups = fs::read_to_string("/etc/group").context("read /etc/group")?;
    let prefix = format!("{GROUP}:");
    let others = groups.lines().filter(|line| !line.starts_with(&prefix));
    let unused = "65533";
    let ours = format!("{prefix}x:{unused}:root");
    Ok(others.chain([ours.as_str()]).flat_map(|line| [line, "\n"]).collect())
}

/// Gives the process mounts of its own: its group, and empty folders where FRR writes whatever its
/// arguments say (/run/frr, /var/tmp/frr).
fn furnish(command: &mut Command, groups: &Path) -> Result<()> {
    let groups = CString::new(groups.to_str().context("a path that is no text")?)?;
    let none = None::<&str>;
    let furnish = move || -> nix::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some(groups.as_c_str()), "/etc/group", none, MsFlags::MS_BIND, none)?;
        for folder in ["/run", "/var/tmp"] {
            mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), none)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing: paths are
    // short or C strings already.
    unsafe { command.pre_exec(move || furnish().map_err(io::Error::from)) };
    Ok(())
}

//! A shell on the router of a lab, and commands on its hosts.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs, iter,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitCode, ExitStatus},
};

use anyhow::{Context, Result, ensure};
use forwarder_tests::{
    frame::mac_text,
    lab::{Lab, router_mac},
    netns::Namespace,
};
use nix::{
    sys::wait::{WaitStatus, wait},
    unistd::Pid,
};

use crate::room;

pub(crate) const NOT_IN_A_LAB: &str =
    "this is not the shell of a lab: open one with `forwarder-lab lab`";

const WELCOME: &str = "\
host A 198.18.1.2 2001:db8:1::2 ── eth0 [this shell] eth1 ── 198.18.2.2 2001:db8:2::2 host B
  forward:  forwarder run --iface eth0,eth1 &    it follows Linux's routes: forwarder route show
  traffic:  forwarder-lab ping 198.18.2.2        or any command on a host: forwarder-lab on A COMMAND
";

/// Opens the shell, or runs the command, and ends as it does.
pub(crate) fn run(forwarder: &Path, command: &[OsString]) -> Result<ExitCode> {
    room::furnish()?;
    let lab = Lab::router().build()?;
    room::show(&lab.router)?;
    refuse_the_machine_itself(&lab)?;
    let shell = env::var_os("SHELL").unwrap_or_else(|| "bash".into());
    let words = if command.is_empty() { &[shell] } else { command };
    if command.is_empty() {
        eprint!("{WELCOME}");
    }
    let mut child = lab.router.command(&words[0]);
    child.args(&words[1..]).env("PATH", path(forwarder)?);
    child.env("FORWARDER_RUN_DIR", env::temp_dir().join("forwarder"));
    for host in iter::once(&lab.router).chain(&lab.hosts) {
        child.env(variable(&host.name), host.namespace.path());
    }
    let child = child.spawn().with_context(|| format!("start {}", words[0].display()))?;
    Ok(room::exit_code(wait_for(child.id())?))
}

/// Becomes a command on a host of the lab that this process is in.
pub(crate) fn on(host: &str, command: &[OsString]) -> Result<ExitCode> {
    ensure!(env::vars_os().any(|(name, _)| name == *variable("router")), NOT_IN_A_LAB);
    let path = env::var_os(variable(host))
        .with_context(|| format!("there is no host {host} in this lab, but A, B and router"))?;
    Namespace::open(path.as_ref()).and_then(|namespace| namespace.enter())?;
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    Err(error).with_context(|| format!("run {}", command[0].display()))
}

/// By which commands in the shell find a host's network.
pub(crate) fn variable(host: &str) -> String {
    format!("FORWARDER_LAB_{}", host.to_uppercase())
}

/// The shell calls its links eth0 and eth1, and so may the machine: nobody shall take one for
/// the other.
fn refuse_the_machine_itself(lab: &Lab) -> Result<()> {
    let ours = lab.router.namespace.inode()?;
    ensure!(ours != Namespace::current()?.inode()?, "the router has the machine's own network");
    // Where bonding is loaded there is a file among the folders of the links.
    let seen: BTreeSet<_> = fs::read_dir("/sys/class/net")?
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()))
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    let expected = ["eth0", "eth1", "lo"].map(String::from).into();
    ensure!(seen == expected, "/sys/class/net shows {seen:?}, which are not the lab's");
    for (link, interface) in [(0, "eth0"), (1, "eth1")] {
        let address = fs::read_to_string(format!("/sys/class/net/{interface}/address"))?;
        ensure!(address.trim() == mac_text(router_mac(link)), "{interface} is not the lab's");
    }
    Ok(())
}

/// The folders of both programs in front, so that they can be called by their names.
fn path(forwarder: &Path) -> Result<OsString> {
    let lab = env::current_exe()?;
    let folders = [forwarder, &lab].into_iter().filter_map(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(folders.chain(env::split_paths(&path)))?)
}

/// Waits for a child, and meanwhile buries whoever else dies: the first process of a PID
/// namespace inherits all orphans.
fn wait_for(child: u32) -> Result<ExitStatus> {
    let child = Pid::from_raw(child.try_into()?);
    loop {
        match wait()? {
            WaitStatus::Exited(pid, code) if pid == child => {
                return Ok(ExitStatus::from_raw(code << 8));
            }
            WaitStatus::Signaled(pid, signal, _) if pid == child => {
                return Ok(ExitStatus::from_raw(signal as i32));
            }
            _ => {}
        }
    }
}

//! The real forwarder, running on a host of the lab.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    host::Host,
    process::{Finished, Process},
    stats::Stats,
    wait::wait_until,
};

/// Names the forwarder's binary; default: what `cargo xtask build` makes.
pub const BINARY: &str = "FORWARDER_BIN";

/// The line by which the daemon says that it forwards.
const READY: &str = "forwarder: ready";
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);
const COMMAND: Duration = Duration::from_secs(20);

pub fn binary() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/forwarder");
    env::var_os(BINARY).map_or_else(built, PathBuf::from)
}

/// How commands reach one forwarder, whether its daemon runs or not.
#[derive(Debug)]
pub struct Forwarder {
    host: Host,
    binary: PathBuf,
    /// What `--name` says, if it is given.
    name: Option<String>,
    run_dir: PathBuf,
}

/// A running daemon. When dropped it is stopped, and nothing of it is left.
#[derive(Debug)]
pub struct Daemon {
    // Dropped in this order.
    process: Process,
    forwarder: Forwarder,
}

impl Forwarder {
    /// The one under test, with a name and a folder of its own, and with nothing in it yet.
    pub fn new(host: &Host) -> Result<Self> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| sweep(host));
        let run_dir = new_folder()?;
        let name = run_dir.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self { host: host.clone(), binary: binary(), name, run_dir })
    }

    /// One that is called as a user does it: without a name, so that it has that of its network
    /// namespace.
    pub fn unnamed(host: &Host, binary: PathBuf) -> Result<Self> {
        Ok(Self { host: host.clone(), binary, name: None, run_dir: new_folder()? })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// `forwarder` with these arguments, separated by spaces, on its host.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = self.host.command(&self.binary);
        command.env("FORWARDER_RUN_DIR", &self.run_dir);
        if let Some(name) = &self.name {
            command.args(["--name", name]);
        }
        command.args(arguments.split_whitespace());
        command
    }

    /// Runs a command to its end, however it ends.
    pub fn call(&self, arguments: &str) -> Result<Finished> {
        let process = Process::spawn(self.command(arguments), Signal::SIGKILL)?;
        process.finish(COMMAND).with_context(|| format!("forwarder {arguments}"))
    }

    /// Runs a command that must succeed, and gives back what it printed.
    pub fn ok(&self, arguments: &str) -> Result<String> {
        let finished = self.call(arguments)?;
        if !finished.status.success() {
            let Finished { status, stderr, .. } = finished;
            bail!("forwarder {arguments}: {status}: {}", stderr.trim());
        }
        Ok(finished.stdout)
    }

    /// Runs a command that must succeed and print JSON.
    pub fn json(&self, arguments: &str) -> Result<Value> {
        let text = self.ok(&format!("-j {arguments}"))?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    pub fn stats(&self) -> Result<Stats> {
        Ok(serde_json::from_value(self.json("stats")?)?)
    }

    /// Starts the daemon with these arguments for `run`, separated by spaces, and waits until it
    /// forwards. Metrics are off and Linux's routes are not followed, unless they say otherwise.
    pub fn start(self, arguments: &str) -> Result<Daemon> {
        let metrics = if arguments.contains("--metrics") { "" } else { "--metrics off" };
        let routes = if arguments.contains("--routes ") { "" } else { "--routes static" };
        self.start_exactly(&format!("{arguments} {metrics} {routes}"))
    }

    /// Likewise, with no argument of our own.
    pub fn start_exactly(self, arguments: &str) -> Result<Daemon> {
        let command = self.command(&format!("run {arguments}"));
        // It takes itself down on SIGTERM: even if we are killed it leaves nothing behind.
        let process = Process::spawn(command, Signal::SIGTERM)?;
        let mut daemon = Daemon { process, forwarder: self };
        wait_until("the daemon to be ready", START, || {
            if let Some(Finished { status, stderr, .. }) = daemon.process.ended()? {
                bail!("forwarder run {arguments}: {status}: {}", stderr.trim());
            }
            Ok(daemon.stderr().lines().any(|line| line == READY).then_some(()))
        })
        .with_context(|| format!("it said: {}", daemon.stderr()))?;
        Ok(daemon)
    }

    /// Removes all that it has left.
    fn unload(&self) {
        // There is an error whenever nothing was left, and none that a test could do anything about.
        let _ = self.call("unload");
        let _ = fs::remove_dir_all(&self.run_dir);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.unload();
    }
}

impl Daemon {
    /// A daemon with its own name, folder and arguments on a host.
    pub fn start(host: &Host, arguments: &str) -> Result<Self> {
        Forwarder::new(host)?.start(arguments)
    }

    pub fn forwarder(&self) -> &Forwarder {
        &self.forwarder
    }

    /// See [`Forwarder::ok`].
    pub fn ok(&self, arguments: &str) -> Result<String> {
        self.forwarder.ok(arguments)
    }

    pub fn stats(&self) -> Result<Stats> {
        self.forwarder.stats()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn stdout(&self) -> String {
        self.process.stdout()
    }

    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Sends a signal and waits for the daemon's end. What it has left can be looked at, adopted
    /// by another [`Forwarder::start`], or removed by dropping it.
    pub fn stop(self, signal: Signal) -> Result<(Finished, Forwarder)> {
        self.signal(signal)?;
        self.ended()
    }

    /// Waits for the daemon's end, which something else has brought about.
    pub fn ended(self) -> Result<(Finished, Forwarder)> {
        let finished = self.process.finish(STOP)?;
        Ok((finished, self.forwarder))
    }
}

/// Names and folders of our forwarders: then a process id, a dash and a number.
const PREFIX: &str = "forwarder-test-";

fn new_folder() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("{PREFIX}{}-{number}", process::id()));
    fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// Removes what forwarders have left whose tests were killed.
fn sweep(host: &Host) {
    let Ok(entries) = fs::read_dir(env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // Dropped at once, and so unloaded.
            let run_dir = entry.path();
            drop(Forwarder { host: host.clone(), binary: binary(), name: Some(name), run_dir });
        }
    }
}

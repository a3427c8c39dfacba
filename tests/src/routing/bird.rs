//! BIRD.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{command, find};
use crate::{host::Host, process::Process, wait::wait_until};

const START: Duration = Duration::from_secs(10);

/// When dropped it is killed: what it has written to the kernel stays there.
#[derive(Debug)]
pub struct Bird {
    process: Process,
    folder: TempDir,
}

impl Bird {
    /// With this configuration, and once it has taken it.
    pub fn start(host: &Host, config: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for BIRD")?;
        let file = folder.path().join("bird.conf");
        fs::write(&file, config)?;
        let mut bird = command(host, &find("bird").context("bird is not there")?);
        bird.arg("-f").arg("-c").arg(file).arg("-s").arg(folder.path().join("bird.ctl"));
        // It has taken its configuration when it has written this.
        let pid = folder.path().join("bird.pid");
        bird.arg("-P").arg(&pid);
        let mut process = Process::spawn(bird, Signal::SIGKILL)?;
        wait_until("BIRD to run", START, || {
            if let Some(ended) = process.ended()? {
                bail!("bird: {}: {}{}", ended.status, ended.stdout, ended.stderr);
            }
            Ok(fs::metadata(&pid).is_ok_and(|it| it.len() > 0).then_some(()))
        })?;
        Ok(Self { process, folder })
    }

    /// Gives it another configuration. It takes it soon, or says on stderr why not.
    pub fn configure(&self, config: &str) -> Result<()> {
        fs::write(self.folder.path().join("bird.conf"), config)?;
        self.process.signal(Signal::SIGHUP)
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("bird said:\n{}", self.process.stderr());
        }
    }
}

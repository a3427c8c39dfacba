//! One daemon a network namespace, and one a name; what a killed one left is found by its name.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, anyhow};
use nix::fcntl::{Flock, FlockArg};

use super::{say, wait_for_end_of};
use crate::{
    config::{directory, socket_path},
    dataplane::{Leftovers, Pins},
};

/// Exit code of a command that needs a daemon, where there is none.
const NO_DAEMON: u8 = 3;

/// Held as long as the daemon lives; the kernel gives it up when the process ends, however it ends.
pub(super) struct OneDaemon {
    folder: PathBuf,
    _namespace: UnixListener,
    _name: Flock<fs::File>,
}

impl OneDaemon {
    pub(super) fn claim(folder: &Path, name: &str) -> Result<Self> {
        // Abstract names belong to the network namespace.
        let address = SocketAddr::from_abstract_name("forwarder")?;
        let namespace = UnixListener::bind_addr(&address).map_err(|_| {
            anyhow!(
                "a forwarder is running in this network namespace: see it with `forwarder status`, \
                 end it with `forwarder unload`"
            )
        })?;
        fs::create_dir_all(folder).with_context(|| {
            format!("cannot make {}: choose another folder with --run-dir", folder.display())
        })?;
        let path = folder.join("lock");
        let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
        let name = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            anyhow!(
                "the name '{name}' is taken by a forwarder in another network namespace: choose \
                 another with --name"
            )
        })?;
        Ok(Self { folder: folder.to_owned(), _namespace: namespace, _name: name })
    }
}

impl Drop for OneDaemon {
    fn drop(&mut self) {
        remove_folder(&self.folder);
    }
}

/// Removes what a killed forwarder of this name left. Exit code 3 where there is nothing.
pub fn unload_leftovers(run_dir: &Path, name: &str) -> Result<ExitCode> {
    let folder = directory(run_dir, name);
    let (_, leftovers) = find_pins(name)?;
    let code = if let Some(left) = leftovers {
        let count = left.interfaces.len();
        let remains = left.remove().context("cannot remove what a killed forwarder left")?;
        wait_for_end_of(&remains)?;
        say(format_args!(
            "removed what a killed forwarder left: it was attached to {count} interfaces"
        ));
        ExitCode::SUCCESS
    } else {
        say(format_args!(
            "error: no forwarder named '{name}' is running, and none has left anything"
        ));
        ExitCode::from(NO_DAEMON)
    };
    let _ = fs::remove_file(socket_path(run_dir, name));
    remove_folder(&folder);
    Ok(code)
}

pub(super) fn find_pins(name: &str) -> Result<(Option<Pins>, Option<Leftovers>)> {
    match Pins::locate(name) {
        Ok(pins) => {
            let leftovers = pins.leftovers().context("cannot look for what a daemon left")?;
            Ok((Some(pins), leftovers))
        }
        Err(error) => {
            tracing::warn!("{error}: forwarding ends with this process, however it ends");
            Ok((None, None))
        }
    }
}

/// The lock file goes, and the folder where nothing else is in it.
fn remove_folder(folder: &Path) {
    let _ = fs::remove_file(folder.join("lock"));
    let _ = fs::remove_dir(folder);
}

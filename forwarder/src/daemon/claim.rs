//! One daemon a network namespace, and one a name; what a killed one left is found by its name.

use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::MetadataExt,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, anyhow};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};

use super::{say, wait_for_end_of};
use crate::{
    config::{directory, socket_path},
    control::server::remove_left,
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
        let namespace = claim_namespace()?;
        let path = folder.join("lock");
        let taken = |_| {
            anyhow!(
                "the name '{name}' is taken by a forwarder in another network namespace: choose \
                 another with --name"
            )
        };
        loop {
            fs::create_dir_all(folder).with_context(|| {
                format!("cannot make {}: choose another folder with --run-dir", folder.display())
            })?;
            let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(taken)?;
            // Whoever held it before may have removed it since it was opened.
            let there = fs::metadata(&path).map(|file| file.ino()).ok();
            if there == Some(lock.metadata()?.ino()) {
                let folder = folder.to_owned();
                return Ok(Self { folder, _namespace: namespace, _name: lock });
            }
        }
    }
}

/// Abstract names belong to the network namespace.
fn claim_namespace() -> Result<UnixListener> {
    let address = SocketAddr::from_abstract_name("forwarder")?;
    UnixListener::bind_addr(&address).map_err(|error| {
        if error.kind() != io::ErrorKind::AddrInUse {
            return anyhow!(error).context("cannot claim this network namespace");
        }
        // Anybody may take the name, but only root may run a forwarder.
        let holder = UnixStream::connect_addr(&address).ok();
        let holder = holder.and_then(|stream| getsockopt(&stream, PeerCredentials).ok());
        match holder.filter(|holder| holder.uid() != 0) {
            Some(holder) => anyhow!(
                "process {} of user {} holds the abstract socket 'forwarder' of this network \
                 namespace, and is no forwarder: end it",
                holder.pid(),
                holder.uid()
            ),
            None => anyhow!(
                "a forwarder is running in this network namespace: see it with `forwarder status`, \
                 end it with `forwarder unload`"
            ),
        }
    })
}

impl Drop for OneDaemon {
    fn drop(&mut self) {
        remove_folder(&self.folder);
    }
}

/// Removes what a killed forwarder of this name left. Exit code 3 where there is nothing.
pub fn unload_leftovers(run_dir: &Path, name: &str) -> Result<ExitCode> {
    // None may start, or be running unheard, while its things are taken away.
    let _claim = OneDaemon::claim(&directory(run_dir, name), name)?;
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
    remove_left(&socket_path(run_dir, name));
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

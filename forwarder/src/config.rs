//! What `forwarder run` was told, validated: nothing raw afterwards.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use nix::{getsockopt_impl, sockopt_impl, sys::socket::GetSockOpt};

use crate::{bypass::Kind, netlink::Follow};

pub mod cpus;

/// How programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Native, and generic with a warning where the driver refuses.
    Auto,
    Native,
    Generic,
}

/// Whether flows are spread over CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    Off,
    /// CPU numbers, ascending, none twice, at least one.
    Cpus(Vec<u32>),
}

/// Whose routes are forwarded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Linux's main table is followed; `route add` writes there.
    Kernel,
    /// Those of `route add` alone, which Linux does not know.
    Static,
}

impl RouteSource {
    pub fn follow(self) -> Follow {
        match self {
            Self::Kernel => Follow::Routes,
            Self::Static => Follow::NoRoutes,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// At least two, none twice.
    pub interfaces: Vec<String>,
    pub mode: Mode,
    pub routes: RouteSource,
    pub steering: Steering,
    /// Frames that a CPU's steering queue holds.
    pub queue_size: u32,
    /// `None`: the network namespace's cookie.
    pub name: Option<String>,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Sets of next hops in the metrics.
    pub metrics_routes: u32,
    pub routes4_max: u32,
    pub routes6_max: u32,
    /// Attach even to an interface over which this login comes.
    pub yes: bool,
    pub accept_unfinished_checksums: bool,
    /// What of Linux's rules may be bypassed.
    pub bypass: BTreeSet<Kind>,
    /// Seconds that forwarding goes on after the daemon has died.
    pub grace_s: u32,
    /// Below it: the control socket and the lock of each forwarder. Default `/run/forwarder`.
    pub run_dir: PathBuf,
    /// Group that may use read-only commands, where it exists. Default `forwarder`.
    pub group: String,
}

/// Bytes of the longest name of a forwarder.
pub const NAME_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' cannot be the name of a forwarder: write 1 to {NAME_MAX} letters, digits, '.', '_' or '-', not beginning with '.'"
)]
pub struct NameError(String);

/// Checks the name of a forwarder: it becomes a directory.
///
/// # Errors
///
/// Says what a name looks like.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let length = 1..=NAME_MAX;
    if length.contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed) {
        Ok(())
    } else {
        Err(NameError(name.to_owned()))
    }
}

sockopt_impl!(
    /// Unlike the inode of its file, a cookie never names a second network namespace.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

/// The name of a forwarder that was given none: that of this thread's network namespace.
///
/// # Errors
///
/// Kernels before 5.14 do not tell.
pub fn default_name() -> io::Result<String> {
    let cookie = NetnsCookie.get(&UnixDatagram::unbound()?)?;
    Ok(format!("netns-{cookie}"))
}

/// Where the forwarder of this name keeps its control socket and its lock.
pub fn directory(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join(name)
}

pub fn socket_path(run_dir: &Path, name: &str) -> PathBuf {
    directory(run_dir, name).join("control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names_that_nobody_has_to_quote() {
        for name in ["lab", "a", "netns-4026531840", "R1_2.b", &"x".repeat(32)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", ".lab", "a/b", "a b", "ä", "a\n", &"x".repeat(33)] {
            assert_eq!(
                check_name(name).unwrap_err().to_string(),
                format!(
                    "'{name}' cannot be the name of a forwarder: write 1 to 32 letters, digits, '.', '_' or '-', not beginning with '.'"
                )
            );
        }
    }

    #[test]
    fn a_namespace_has_one_name_and_it_is_a_valid_one() {
        let name = default_name().unwrap();
        assert_eq!(default_name().unwrap(), name);
        assert_ne!(name, "netns-0");
        assert_eq!(check_name(&name), Ok(()));
        assert_eq!(
            socket_path(Path::new("/run/forwarder"), "lab"),
            Path::new("/run/forwarder/lab/control.sock")
        );
    }
}

//! The other end of a veth, wherever it is.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::{fd::AsFd, linux::fs::MetadataExt},
    path::Path,
};

use super::{Machine, find};
use crate::netlink::{Generic, LinkDetails, Offloads, RequestError, Requests};

/// Where a peer is, as far as a command can be run there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In our network namespace.
    Here,
    /// In one that `ip netns` knows by this name.
    Named(String),
    /// In that of this process.
    Process(u32),
}

impl Place {
    /// The command line that runs `command` there.
    pub fn command(&self, command: &str) -> String {
        match self {
            Self::Here => command.to_owned(),
            Self::Named(name) => format!("ip netns exec {name} {command}"),
            Self::Process(pid) => format!("nsenter -t {pid} -n {command}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub place: Place,
    pub mtu: u32,
    pub offloads: Offloads,
}

impl Peer {
    /// The command line that changes its offloads.
    pub fn ethtool(&self, settings: &str) -> String {
        self.place.command(&format!("ethtool -K {} {settings}", self.name))
    }

    /// `None` where it cannot be seen.
    pub(super) async fn read(
        of: &LinkDetails,
        links: &[LinkDetails],
        machine: &Machine,
        requests: &Requests,
        generic: &Generic,
    ) -> Result<Option<Self>, RequestError> {
        let Some(ifindex) = of.lower else { return Ok(None) };
        let Some(namespace) = of.lower_namespace else {
            return Self::of(find(links, ifindex), Place::Here, generic).await;
        };
        let Some((place, file)) = find_namespace(namespace, machine, requests).await else {
            return Ok(None);
        };
        let there = Requests::open_in(file.as_fd())?.links().await?;
        Self::of(find(&there, ifindex), place, &Generic::open_in(file.as_fd())?).await
    }

    async fn of(
        details: Option<&LinkDetails>,
        place: Place,
        generic: &Generic,
    ) -> Result<Option<Self>, RequestError> {
        let Some(LinkDetails { link, .. }) = details else { return Ok(None) };
        let offloads = generic.offloads(link.ifindex).await?;
        Ok(offloads.map(|offloads| Self {
            name: link.name.clone(),
            place,
            mtu: link.mtu,
            offloads,
        }))
    }
}

/// The network namespace that has this id here: by its name, or by a process in it.
async fn find_namespace(id: i32, machine: &Machine, requests: &Requests) -> Option<(Place, File)> {
    // A file that is not, or is no longer, a namespace is not the one.
    let is_it = async |path: &Path| -> io::Result<Option<File>> {
        let file = File::open(path)?;
        let found = requests.namespace_id(file.as_fd()).await?;
        Ok((found == Some(id)).then_some(file))
    };
    let named = machine.namespaces.iter().flat_map(|directory| entries(directory));
    for name in named {
        if let Ok(Some(file)) = is_it(&name).await {
            let name = name.file_name()?.to_string_lossy().into_owned();
            return Some((Place::Named(name), file));
        }
    }
    let mut seen = HashSet::new();
    for process in entries(&machine.proc) {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        let path = process.join("ns/net");
        let (Some(pid), Ok(metadata)) = (pid, fs::metadata(&path)) else { continue };
        if seen.insert(metadata.st_ino())
            && let Ok(Some(file)) = is_it(&path).await
        {
            return Some((Place::Process(pid), file));
        }
    }
    None
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_for_each_place() {
        let command = "ethtool -K eth0 tx off";
        assert_eq!(Place::Here.command(command), command);
        assert_eq!(
            Place::Named("blue".into()).command(command),
            "ip netns exec blue ethtool -K eth0 tx off"
        );
        assert_eq!(Place::Process(7).command(command), "nsenter -t 7 -n ethtool -K eth0 tx off");
    }
}

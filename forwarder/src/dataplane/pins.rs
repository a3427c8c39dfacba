//! Where links outlive the daemon: one folder a forwarder, on a BPF file system of the host.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    pin::PinError,
    programs::links::{FdLink, PinnedLink},
};
use nix::{
    mount::{MsFlags, mount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

const BPF_FS: &str = "/sys/fs/bpf";
/// `ip netns exec` hides the host's file systems below /sys; the first process still sees them.
const BPF_FS_OF_HOST: &str = "/proc/1/root/sys/fs/bpf";

use super::Remains;

/// The folder of one forwarder's pins.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
}

/// What a dead daemon left: links whose program goes on forwarding.
#[derive(Debug)]
pub struct Leftovers {
    folder: PathBuf,
    /// Interface indexes.
    pub interfaces: Vec<u32>,
    /// Ids of the programs that are attached by them.
    pub programs: Vec<u32>,
}

impl Pins {
    /// The BPF file system's folder for a forwarder of this name; the file system is mounted where
    /// that is not done yet.
    ///
    /// # Errors
    ///
    /// Where there is no BPF file system that outlives this process: a container, most often.
    pub fn locate(name: &str) -> io::Result<Self> {
        let root = [BPF_FS, BPF_FS_OF_HOST].into_iter().map(Path::new).find(|path| is_bpf_fs(path));
        let root = match root {
            Some(root) => root,
            None => mount_bpf_fs()?,
        };
        Ok(Self { folder: root.join("forwarder").join(name) })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was left there, if anything.
    pub fn leftovers(&self) -> io::Result<Option<Leftovers>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut left =
            Leftovers { folder: self.folder.clone(), interfaces: Vec::new(), programs: Vec::new() };
        for entry in entries {
            let path = entry?.path();
            left.interfaces.extend(ifindex(&path));
            if let Ok(link) = PinnedLink::from_pin(&path)
                && let Ok(info) = FdLink::from(link).info()
            {
                left.programs.push(info.program_id());
            }
        }
        Ok(Some(left))
    }

    /// Links of interfaces are named by the index; others are not numbers.
    pub(super) fn pin(&self, name: &str, link: FdLink) -> io::Result<PinnedLink> {
        // Another forwarder that ends at this moment removes the folder above.
        fs::create_dir_all(&self.folder).or_else(|_| fs::create_dir_all(&self.folder))?;
        link.pin(self.folder.join(name)).map_err(|error| match error {
            PinError::SyscallError(error) => error.io_error,
            error => io::Error::other(error),
        })
    }

    /// Removes the folder, which must be empty by now.
    pub fn remove_folder(&self) -> io::Result<()> {
        remove_empty(&self.folder)
    }
}

impl Leftovers {
    /// Detaches the programs: with its last reference gone a link ends, if not at once.
    pub fn remove(self) -> io::Result<Remains> {
        let entries: Result<Vec<_>, _> = fs::read_dir(&self.folder)?.collect();
        let mut entries: Vec<_> = entries?.iter().map(fs::DirEntry::path).collect();
        // Tracepoints tell of frames until the last program of an interface is gone.
        entries.sort_by_key(|path| ifindex(path).is_none());
        for path in entries {
            fs::remove_file(path)?;
        }
        remove_empty(&self.folder)?;
        Ok(Remains { programs: self.programs, cpu_maps: Vec::new() })
    }
}

/// Of a pin that belongs to an interface.
fn ifindex(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// And the folder above it, unless another forwarder has its own there.
fn remove_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(above) = folder.parent() {
        let _ = fs::remove_dir(above);
    }
    Ok(())
}

fn is_bpf_fs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

/// As libbpf does.
fn mount_bpf_fs() -> io::Result<&'static Path> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    // In a mount namespace of its own, as `ip netns exec` makes one, it would end with this
    // process, and all pins with it. Not everybody may look at the first process.
    if let (Ok(ours), Ok(hosts)) = (namespace("self"), namespace("1"))
        && ours != hosts
    {
        let message = format!("no BPF file system is mounted on the host's {BPF_FS}");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    if namespace("1").is_err() {
        tracing::warn!(
            "mounting a BPF file system on {BPF_FS}: whether that is the host's cannot be seen from \
             here. Under `ip netns exec` it is not, and forwarding ends with this process"
        );
    }
    mount(Some("bpf"), BPF_FS, Some("bpf"), MsFlags::empty(), Some("mode=0700"))?;
    Ok(Path::new(BPF_FS))
}

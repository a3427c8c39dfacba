//! What the kernel tests find on the machine: tools on the path, and a mounted bpffs.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    process::{self, on_path},
    workspace::Workspace,
};

/// A tool that tests call, and the Debian package that it lies in.
const TOOLS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("traceroute", "traceroute"),
    ("ping", "iputils-ping"),
    ("nft", "nftables"),
    ("iptables-legacy", "iptables"),
];
/// Tools of packages that would bring a service along and start it: their files are taken out of
/// the packages, and nothing is installed.
const UNPACKED: [Unpacked; 2] = [
    Unpacked {
        tools: &["promtool"],
        packages: &["prometheus"],
        folders: ["usr/bin", "usr/sbin"],
        needs_libraries: false,
    },
    Unpacked {
        tools: &["zebra", "bgpd", "bird"],
        packages: &["frr", "bird2"],
        folders: ["usr/lib/frr", "usr/sbin"],
        needs_libraries: true,
    },
];

struct Unpacked {
    tools: &'static [&'static str],
    packages: &'static [&'static str],
    /// Of the tree of files, where the tools lie.
    folders: [&'static str; 2],
    /// Whether it takes libraries that a machine does not have anyway.
    needs_libraries: bool,
}

const APT_LIMIT: Duration = Duration::from_mins(5);

/// Gets what is missing where we may, names what stays missing, and returns the path for the
/// tests. A tool that is not there is no error: the tests that need it skip, and say so.
pub(crate) fn prepare(workspace: &Workspace) -> Result<OsString> {
    let missing: Vec<_> = TOOLS.into_iter().filter(|(tool, _)| on_path(tool).is_none()).collect();
    if let Err(error) = install(&missing) {
        println!("{error:#}");
    }
    let mut folders: Vec<PathBuf> =
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    for unpacked in UNPACKED {
        match unpacked.folders(&workspace.target.join("toolchain")) {
            Ok(more) => folders.extend(more),
            Err(error) => {
                let Unpacked { tools, packages, .. } = unpacked;
                let (tools, packages) = (tools.join(", "), packages.join(" "));
                println!("missing for some tests: {tools} (Debian: {packages}): {error:#}");
            }
        }
    }
    if process::is_root() {
        mount_bpffs()?;
    }
    env::join_paths(folders).context("join the path")
}

fn install(missing: &[(&str, &str)]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let tools = missing.iter().map(|(tool, _)| *tool).collect::<Vec<_>>().join(", ");
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    if !process::is_root() || on_path("apt-get").is_none() {
        bail!("missing for some tests: {tools} (Debian: {})", packages.join(" "));
    }
    println!("installing for the tests: {}", packages.join(" "));
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(&packages);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    with_fresh_lists(&mut command)
}

impl Unpacked {
    /// The folders that the tools lie in; none if all are there already.
    fn folders(&self, toolchain: &Path) -> Result<Vec<PathBuf>> {
        let there =
            |tool: &&str| on_path(tool).is_some() || Path::new("/usr/lib/frr").join(tool).exists();
        if self.tools.iter().all(there) {
            return Ok(Vec::new());
        }
        let tree = toolchain.join(self.packages[0]);
        let folders = self.folders.map(|folder| tree.join(folder)).to_vec();
        let unpacked =
            |tool: &&str| there(tool) || folders.iter().any(|folder| folder.join(tool).exists());
        if !self.tools.iter().all(unpacked) {
            self.unpack(&tree)?;
        }
        Ok(folders)
    }

    fn unpack(&self, tree: &Path) -> Result<()> {
        if on_path("apt-get").is_none() || on_path("dpkg-deb").is_none() {
            bail!("there is no apt to fetch it");
        }
        println!("fetching for the tests, to be unpacked alone: {}", self.packages.join(" "));
        let packages = self.with_libraries()?;
        let download = tree.join("download");
        fs::create_dir_all(&download)?;
        let mut command = Command::new("apt-get");
        command.current_dir(&download).args(["download", "-q"]).args(packages);
        // apt's own user may not write here.
        command.args(["-o", "APT::Sandbox::User=root"]);
        with_fresh_lists(&mut command)?;
        for package in fs::read_dir(&download)? {
            process::run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(tree))?;
        }
        Ok(fs::remove_dir_all(&download)?)
    }

    /// The packages, and what apt would install with them here.
    fn with_libraries(&self) -> Result<Vec<String>> {
        let packages = self.packages.iter().map(|it| (*it).to_owned());
        if !self.needs_libraries {
            return Ok(packages.collect());
        }
        let mut command = Command::new("apt-get");
        command.args(["install", "--simulate", "-q", "--no-install-recommends"]);
        command.args(self.packages);
        let simulated = if let Ok(simulated) = process::output(&mut command) {
            simulated
        } else {
            with_fresh_lists(&mut command)?;
            process::output(&mut command)?
        };
        Ok(would_install(&simulated))
    }
}

/// The packages on lines such as `Inst frr (8.4.4 Debian:12 [amd64])`.
fn would_install(simulated: &str) -> Vec<String> {
    let lines = simulated.lines().filter_map(|line| line.strip_prefix("Inst "));
    lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Lists of packages may be missing or old on a new machine: the second try has new ones.
fn with_fresh_lists(command: &mut Command) -> Result<()> {
    if process::output(command).is_ok() {
        return Ok(());
    }
    if process::is_root() {
        process::run_within(Command::new("apt-get").args(["update", "-q"]), APT_LIMIT)?;
    }
    process::run_within(command, APT_LIMIT)
}

/// As bpftool and libbpf do when they first pin something.
fn mount_bpffs() -> Result<()> {
    const BPFFS: &str = "/sys/fs/bpf";
    let mounts = fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    if is_bpffs(&mounts, BPFFS) || !Path::new(BPFFS).exists() {
        return Ok(());
    }
    println!("mounting bpffs at {BPFFS}");
    process::run(Command::new("mount").args(["-t", "bpf", "bpf", BPFFS, "-o", "mode=0700"]))
}

fn is_bpffs(mounts: &str, folder: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(folder) && fields.next() == Some("bpf")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_install_is_read() {
        let simulated = "NOTE: This is only a simulation!\nThe following NEW packages:\n  frr\n\
            Inst libyang2 (2.1.30-2 Debian:12.15/oldstable [amd64])\n\
            Inst frr (8.4.4-1.1~deb12u2 Debian:12.15/oldstable [amd64])\n\
            Conf frr (8.4.4-1.1~deb12u2 Debian:12.15/oldstable [amd64])\n";
        assert_eq!(would_install(simulated), ["libyang2", "frr"]);
        assert_eq!(would_install(""), Vec::<String>::new());
    }

    #[test]
    fn a_mounted_bpffs_is_seen() {
        let mounts = "sysfs /sys sysfs rw 0 0\nnone /sys/fs/bpf bpf rw,nosuid 0 0\n";
        assert!(is_bpffs(mounts, "/sys/fs/bpf"));
        assert!(!is_bpffs(mounts, "/run/bpf"));
        assert!(!is_bpffs("tmpfs /sys/fs/bpf tmpfs rw 0 0\n", "/sys/fs/bpf"));
    }
}

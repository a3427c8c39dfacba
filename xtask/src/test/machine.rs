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
    match promtool(&workspace.target.join("toolchain/prometheus")) {
        Ok(None) => {}
        Ok(Some(folder)) => folders.insert(0, folder),
        Err(error) => println!("promtool is missing (Debian: prometheus): {error:#}"),
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

/// The folder with promtool, unless it is on the path already. Only the file is taken out of the
/// package: installed, it would bring a server along and start it.
fn promtool(folder: &Path) -> Result<Option<PathBuf>> {
    if on_path("promtool").is_some() {
        return Ok(None);
    }
    let bin = folder.join("usr/bin");
    if bin.join("promtool").exists() {
        return Ok(Some(bin));
    }
    if on_path("apt-get").is_none() || on_path("dpkg-deb").is_none() {
        bail!("there is no apt to fetch it");
    }
    println!("fetching promtool for the tests, out of Debian's package prometheus");
    let download = folder.join("download");
    fs::create_dir_all(&download)?;
    let mut command = Command::new("apt-get");
    command.current_dir(&download).args(["download", "-q", "prometheus"]);
    // apt's own user may not write here.
    command.args(["-o", "APT::Sandbox::User=root"]);
    with_fresh_lists(&mut command)?;
    let package = fs::read_dir(&download)?.next().context("apt fetched nothing")??.path();
    process::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
    fs::remove_dir_all(&download)?;
    Ok(Some(bin))
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
    fn a_mounted_bpffs_is_seen() {
        let mounts = "sysfs /sys sysfs rw 0 0\nnone /sys/fs/bpf bpf rw,nosuid 0 0\n";
        assert!(is_bpffs(mounts, "/sys/fs/bpf"));
        assert!(!is_bpffs(mounts, "/run/bpf"));
        assert!(!is_bpffs("tmpfs /sys/fs/bpf tmpfs rw 0 0\n", "/sys/fs/bpf"));
    }
}

//! `cargo xtask build`: the eBPF object, then the programs that embed or start it.

use std::{env, fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    process,
    toolchain::{self, Toolchain},
    workspace::{Object, Profile, Workspace, shown},
};

/// Build the eBPF object, the forwarder and the lab
///
/// The eBPF program has its own compiler, which this finds or installs (see FORWARDER_BPF_RUSTC,
/// FORWARDER_BPF_LINKER and FORWARDER_BPF_WAY in the message when it finds none). The object goes
/// to target/bpf/ and into the forwarder, which needs no file beside it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Kind {
    /// Optimised binaries in target/release (the default)
    #[arg(long, conflicts_with = "debug")]
    release: bool,
    /// Quicker to build, in target/debug; the eBPF object is optimised always
    #[arg(long)]
    pub(crate) debug: bool,
    /// With an eBPF object that logs a sampled line a verdict: for looking on, not for load
    #[arg(long)]
    pub(crate) trace: bool,
}

impl Kind {
    pub(crate) fn profile(self) -> Profile {
        if self.debug { Profile::Debug } else { Profile::Release }
    }

    fn object(self) -> Object {
        if self.trace { Object::Trace } else { Object::Release }
    }
}

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<()> {
    all(workspace, args.kind)?;
    for name in ["forwarder", "forwarder-lab"] {
        println!("{}", shown(&workspace.binary(name, args.kind.profile())).display());
    }
    println!("{}", shown(&workspace.object(args.kind.object())).display());
    Ok(())
}

/// Builds everything that `run`, `demo` and `lab` start.
pub(crate) fn all(workspace: &Workspace, kind: Kind) -> Result<()> {
    objects(workspace, &[kind.object()])?;
    binaries(workspace, kind.profile(), kind.trace)
}

pub(crate) fn objects(workspace: &Workspace, objects: &[Object]) -> Result<()> {
    workspace.refuse_sudo()?;
    let toolchain = toolchain::find(workspace)?;
    objects.iter().try_for_each(|&which| object(workspace, &toolchain, which))
}

pub(crate) fn binaries(workspace: &Workspace, profile: Profile, trace: bool) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "--package=forwarder", "--package=forwarder-tests"]);
    command.args(["--bin=forwarder", "--bin=forwarder-lab"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    if trace {
        command.arg("--features=forwarder/trace");
    }
    process::run(&mut command)
}

/// Builds the benchmark.
pub(crate) fn bench(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--package=forwarder-tests", "--bin=forwarder-bench"]);
    process::run(&mut command)
}

fn object(workspace: &Workspace, toolchain: &Toolchain, object: Object) -> Result<()> {
    let program = if object == Object::Bench { "forwarder-bench" } else { "forwarder-ebpf" };
    let target =
        if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };
    let folder = workspace.target.join("bpf-build");
    let mut command = Command::new(&toolchain.cargo);
    command
        .current_dir(&workspace.root)
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&toolchain.linker))
        .args(["build", "--package=forwarder-ebpf", "--release", "-Zbuild-std=core"])
        // Both would call a panic, and the verifier has no way to end one.
        .args(["--config", "profile.release.overflow-checks=false"])
        .args(["--config", "profile.release.debug-assertions=false"])
        .args(["--bin", program])
        .arg("--target")
        .arg(target)
        .arg("--target-dir")
        .arg(&folder);
    // They name the host's compiler, or wrap it.
    for variable in ["RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    if object == Object::Trace {
        command.arg("--features=trace");
    }
    process::run(&mut command).with_context(|| {
        format!("the eBPF object was not built, with {}", toolchain.rustc.display())
    })?;
    let built = folder.join(target).join("release").join(program);
    replace_if_changed(&built, &workspace.object(object))
}

/// Encoded as cargo takes them when a path may hold a space.
fn rustflags(linker: &Path) -> String {
    let arch = env::consts::ARCH;
    [
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        format!("-Clinker={}", linker.display()),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
    ]
    .join("\u{1f}")
}

/// Leaves the file alone when it is the same, since whoever embeds it would be built again.
fn replace_if_changed(from: &Path, to: &Path) -> Result<()> {
    let new = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let folder = to.parent().context("an object lies in a folder")?;
    fs::create_dir_all(folder)?;
    let draft = to.with_extension("draft");
    fs::write(&draft, new)
        .and_then(|()| fs::rename(&draft, to))
        .with_context(|| format!("write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_object_is_not_written_again() {
        let folder = env::temp_dir().join(format!("xtask-object-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("built"), folder.join("bpf/object.o"));
        let modified = || fs::metadata(&to).unwrap().modified().unwrap();

        fs::write(&from, "first").unwrap();
        replace_if_changed(&from, &to).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        fs::File::options().write(true).open(&to).unwrap().set_modified(long_ago).unwrap();
        replace_if_changed(&from, &to).unwrap();
        assert_eq!(modified(), long_ago);

        fs::write(&from, "other").unwrap();
        replace_if_changed(&from, &to).unwrap();
        assert_ne!(modified(), long_ago);
        assert_eq!(fs::read(&to).unwrap(), b"other");
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! Where things lie: the sources, cargo's target directory, and what is built into it.

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Release,
    Debug,
}

/// An eBPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Release,
    /// The same, but it logs.
    Trace,
    /// The programs of benchmarks and of some tests.
    Bench,
}

impl Object {
    /// What names the objects to forwarder/build.rs and to the tests.
    pub(crate) const VARIABLES: [(&str, Self); 3] = [
        ("FORWARDER_EBPF_OBJECT", Self::Release),
        ("FORWARDER_EBPF_TRACE_OBJECT", Self::Trace),
        ("FORWARDER_BENCH_OBJECT", Self::Bench),
    ];
}

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// `cargo metadata --no-deps`.
    pub(crate) metadata: Value,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().context("xtask lies in no workspace")?.to_owned();
        let text = process::output(
            Command::new(cargo())
                .args(["metadata", "--no-deps", "--format-version=1"])
                .current_dir(&root),
        )?;
        let metadata: Value = serde_json::from_str(&text).context("read cargo metadata")?;
        let target = metadata["target_directory"].as_str().context("read cargo metadata")?.into();
        Ok(Self { root, target, metadata })
    }

    /// A cargo command at the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        // forwarder/build.rs knows the usual target directory by itself. Left alone in that case,
        // `cargo build` and `cargo xtask build` do not undo each other's work.
        if self.target != self.root.join("target") {
            for (variable, object) in Object::VARIABLES {
                let object = self.object(object);
                if object.exists() {
                    command.env(variable, object);
                }
            }
        }
        command
    }

    /// The eBPF object, where forwarder/build.rs looks for it.
    pub(crate) fn object(&self, object: Object) -> PathBuf {
        self.target.join("bpf").join(match object {
            Object::Release => "forwarder-ebpf.o",
            Object::Trace => "forwarder-ebpf-trace.o",
            Object::Bench => "forwarder-bench.o",
        })
    }

    pub(crate) fn binary(&self, name: &str, profile: Profile) -> PathBuf {
        let folder = match profile {
            Profile::Release => "release",
            Profile::Debug => "debug",
        };
        self.target.join(folder).join(name)
    }

    /// Refuses to build when sudo made us root in somebody's working tree: files that belong to
    /// root would break every later build.
    pub(crate) fn refuse_sudo(&self) -> Result<()> {
        let owner = fs::metadata(&self.root)?.uid();
        if process::is_root() && owner != 0 && env::var_os("SUDO_UID").is_some() {
            bail!(
                "run this without sudo: cargo would leave files of root in {}; what needs root \
                 is started with sudo after the build",
                self.root.display()
            );
        }
        Ok(())
    }
}

/// The cargo that started us.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// A path as a person would type it here.
pub(crate) fn shown(path: &Path) -> &Path {
    env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path)
}

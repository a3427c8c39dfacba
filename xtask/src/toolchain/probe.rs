//! Looks at the machine, and changes nothing.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    RUSTC_VARIABLE, WAY_VARIABLE,
    compiler::Compiler,
    plan::{self, Facts, Finding, Way},
    variable,
};
use crate::process::{self, on_path};

pub(crate) fn facts(root: &Path) -> Result<Facts> {
    let (rustup, apt) = (on_path("rustup").is_some(), on_path("apt-get").is_some());
    let named = variable(RUSTC_VARIABLE).is_some();
    let ways = if named {
        vec![Way::Named]
    } else {
        let mut ways = Vec::new();
        if rustup {
            // The pinned compiler first: it is known to work, and lacks 3 MB of sources at most.
            ways.extend(pinned(root).map(Way::Rustup));
            ways.push(Way::Rustup("nightly".to_owned()));
        }
        if apt || Path::new(SYSTEM).exists() {
            ways.push(Way::System);
        }
        let only = env::var(WAY_VARIABLE).ok().filter(|value| !value.is_empty());
        plan::allowed(only.as_deref(), ways).map_err(|why| anyhow!(why))?
    };
    let ways = ways.into_iter().map(|way| (way.clone(), self::way(&way))).collect();
    let root = process::is_root();
    Ok(Facts { ways, named, linker_refused: false, rustup, apt, root, tried: Vec::new() })
}

pub(crate) fn way(way: &Way) -> Finding {
    look(way).0
}

/// The compiler of a way that was found ready.
pub(crate) fn compiler(way: &Way) -> Result<Compiler> {
    look(way).1.with_context(|| format!("{way}: the compiler is gone"))
}

const SYSTEM: &str = "/usr/bin/rustc";

fn look(way: &Way) -> (Finding, Option<Compiler>) {
    let Some(rustc) = rustc(way) else { return (Finding::Absent, None) };
    // A toolchain of rustup is all of a piece; anywhere else the two need not be.
    let cargo = match way {
        Way::Rustup(_) => Some(rustc.with_file_name("cargo")).filter(|cargo| cargo.is_file()),
        Way::Named | Way::System => None,
    };
    Compiler::inspect(&rustc, cargo)
}

fn rustc(way: &Way) -> Option<PathBuf> {
    let rustc = match way {
        Way::Named => variable(RUSTC_VARIABLE)?,
        Way::System => SYSTEM.into(),
        Way::Rustup(toolchain) => {
            let mut command = Command::new("rustup");
            command.args(["which", "rustc", "--toolchain", toolchain]);
            // Asking must not install it.
            command.env("RUSTUP_AUTO_INSTALL", "0");
            process::output(&mut command).ok()?.trim().into()
        }
    };
    rustc.is_file().then_some(rustc)
}

/// The channel of rust-toolchain.toml.
fn pinned(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("rust-toolchain.toml")).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("channel"))?;
    Some(line.split('"').nth(1)?.to_owned())
}

//! What the eBPF build needs: a rustc that can build `core` for BPF, the sources of that `core`,
//! and a bpf-linker that speaks the LLVM of that rustc.
//!
//! [`probe`] looks at the machine, [`plan`] decides (pure), [`install`] changes something, and so
//! on in turns until a compiler is there; [`linker`] finds or builds the linker for it. [`record`]
//! keeps the answer, so that the next build asks nothing.

mod compiler;
mod install;
mod linker;
mod plan;
mod probe;
mod record;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::workspace::{Workspace, cargo};
use compiler::Compiler;
use plan::Step;

/// The ways, in the words of the environment.
pub(crate) const RUSTC_VARIABLE: &str = "FORWARDER_BPF_RUSTC";
pub(crate) const LINKER_VARIABLE: &str = "FORWARDER_BPF_LINKER";
pub(crate) const WAY_VARIABLE: &str = "FORWARDER_BPF_WAY";

/// What `cargo build` of the eBPF crate is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toolchain {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
    pub(crate) linker: PathBuf,
}

/// Finds the toolchain, or installs it. Says what it does, and nothing when nothing is to do.
pub(crate) fn find(workspace: &Workspace) -> Result<Toolchain> {
    let folder = workspace.target.join("toolchain");
    if let Some(toolchain) = record::read(&folder) {
        return Ok(toolchain);
    }
    let mut facts = probe::facts(&workspace.root)?;
    loop {
        match plan::next(&facts) {
            Step::Use(way) => {
                let compiler = probe::compiler(&way)?;
                say(&format!("using {compiler}"));
                match complete(&folder, &compiler) {
                    Ok(toolchain) => {
                        record::write(&folder, &toolchain, &compiler)?;
                        return Ok(toolchain);
                    }
                    Err(error) => {
                        say(&format!("{error:#}"));
                        facts.linker_refused |= variable(LINKER_VARIABLE).is_some();
                        facts.reject(&way, format!("no bpf-linker for it: {error:#}"));
                    }
                }
            }
            Step::Install(action) => {
                say(&format!("{} ({})", action.describe(), action.line()));
                match install::install(&action) {
                    Ok(()) => facts.done(&action, probe::way(&action.way())),
                    Err(error) => {
                        say(&format!("{error:#}"));
                        facts.failed(&action, format!("{error:#}"));
                    }
                }
            }
            Step::GiveUp(message) => bail!(message),
        }
    }
}

fn complete(folder: &Path, compiler: &Compiler) -> Result<Toolchain> {
    let linker = linker::find(folder, compiler)?;
    let cargo = compiler.cargo.clone().unwrap_or_else(cargo);
    Ok(Toolchain { cargo, rustc: compiler.rustc.clone(), linker })
}

fn say(what: &str) {
    eprintln!("eBPF toolchain: {what}");
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

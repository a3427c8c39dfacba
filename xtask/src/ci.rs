//! `cargo xtask ci`: what must hold before a change goes in, cheap first.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;

/// A name, a line as one would type it, and what it finds in the environment.
struct Check {
    name: &'static str,
    line: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const CHECKS: [Check; 6] = [
    Check { name: "format", line: "cargo fmt --all --check", environment: &[] },
    Check { name: "layers", line: "cargo xtask layers", environment: &[] },
    Check {
        name: "clippy",
        line: "cargo clippy --workspace --all-targets -- -D warnings",
        environment: &[],
    },
    Check {
        name: "clippy, with trace",
        line: "cargo clippy --package forwarder --package forwarder-ebpf --all-targets \
               --features forwarder/trace,forwarder-ebpf/trace -- -D warnings",
        environment: &[],
    },
    Check { name: "test", line: "cargo xtask test", environment: &[] },
    Check {
        name: "docs",
        line: "cargo doc --no-deps --workspace --exclude forwarder-ebpf",
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
];

/// Check everything that a change must pass, cheap checks first
///
/// Format, directions of dependencies, lints, all tests, documentation. Stops at the first that
/// fails. Each is a command that can be run alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(workspace: &Workspace, _: Args) -> Result<()> {
    let start = Instant::now();
    for check in &CHECKS {
        println!("\n=== {} ===\n$ {}", check.name, check.line);
        let start = Instant::now();
        let status = check.command(workspace)?.status().context("start cargo")?;
        if !status.success() {
            bail!("the check `{}` failed: {}", check.name, check.line);
        }
        println!("=== {}: ok, {} s", check.name, start.elapsed().as_secs());
    }
    println!("\nall checks passed, {} s", start.elapsed().as_secs());
    Ok(())
}

impl Check {
    fn command(&self, workspace: &Workspace) -> Result<Command> {
        let mut words = self.line.split_whitespace();
        words.next().filter(|word| *word == "cargo").context("a check is a cargo command")?;
        let mut command = workspace.cargo();
        command.args(words).envs(self.environment.iter().copied());
        Ok(command)
    }
}

//! What a developer or a first user runs. One file a verb; what several verbs need lies beside
//! them: [`workspace`] (paths), [`process`] (commands), [`toolchain`] (the compiler for eBPF).

mod bench;
mod build;
mod ci;
mod lab;
mod layers;
mod process;
mod run;
mod soak;
mod test;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Builds, runs and tests the forwarder.
///
/// The first build finds or installs what the eBPF program needs, says so, and keeps it below
/// target/toolchain. What needs root is built first, by you, and then started with sudo, shown as
/// it is called.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Build(build::Args),
    Run(run::Args),
    Test(test::Args),
    Soak(soak::Args),
    Bench(bench::Args),
    Demo(lab::DemoArgs),
    Lab(lab::LabArgs),
    Layers(layers::Args),
    Ci(ci::Args),
}

fn main() -> ExitCode {
    // Not as the result of main: that would print a backtrace where RUST_BACKTRACE is set.
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    let workspace = Workspace::find()?;
    match verb {
        Verb::Build(args) => build::run(&workspace, args),
        Verb::Run(args) => run::run(&workspace, args),
        Verb::Test(args) => test::run(&workspace, args),
        Verb::Soak(args) => soak::run(&workspace, args),
        Verb::Bench(args) => bench::run(&workspace, args),
        Verb::Demo(args) => lab::demo(&workspace, args),
        Verb::Lab(args) => lab::lab(&workspace, args),
        Verb::Layers(args) => layers::run(&workspace, args),
        Verb::Ci(args) => ci::run(&workspace, args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

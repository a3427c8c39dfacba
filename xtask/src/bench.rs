//! `cargo xtask bench`: builds as the user, fetches what is measured with, then becomes the
//! benchmark as root.

use std::{ffi::OsString, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;

use crate::{
    build, process,
    workspace::{Object, Profile, Workspace},
};

/// Measure, and compare with what is to be reached
///
/// A benchmark is not a test: its figures depend on the machine, and on what else runs there.
/// Results go to target/bench/ as JSON and as a picture.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Fib(FibArgs),
}

/// Lookups in full-size tables by BPF_PROG_RUN, beside LPM_TRIE and bpf_fib_lookup; memory,
/// loading, updates
///
/// Takes some ten minutes on an idle machine. The real tables are fetched by npm, 19 MB, once.
/// `--brief` shows in seconds that it works, `--writer` measures what the per-CPU route
/// map buys; `cargo xtask bench fib -- --help` tells what else it takes.
#[derive(Debug, clap::Args)]
struct FibArgs {
    /// Arguments of the benchmark
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<OsString>,
}

/// The real tables: what a router of the Internet has.
const TABLES: &str = "@ip-location-db/asn";
const TABLES_LIMIT: Duration = Duration::from_mins(5);
/// Written by root, but to be the user's.
const RESULTS: [&str; 3] = ["fib.json", "fib.svg", "fib-writer.json"];

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<()> {
    let What::Fib(args) = args.what;
    build::objects(workspace, &[Object::Bench])?;
    build::bench(workspace)?;
    let tables = workspace.target.join("tables");
    let needs_none = ["--brief", "--writer", "synthetic"];
    if !args.rest.iter().any(|word| needs_none.iter().any(|needs_none| word == needs_none))
        && let Err(error) = fetch(&tables)
    {
        eprintln!("the real tables were not fetched: {error:#}");
    }
    let results = workspace.target.join("bench");
    fs::create_dir_all(&results)?;
    for name in RESULTS {
        let file = fs::File::options().append(true).create(true).open(results.join(name));
        file.with_context(|| format!("make {} in {}", name, results.display()))?;
    }
    let mut arguments: Vec<OsString> = vec!["fib".into()];
    for (option, path) in
        [("--object", workspace.object(Object::Bench)), ("--cache", tables), ("--out", results)]
    {
        arguments.extend([option.into(), path.into()]);
    }
    arguments.extend(args.rest);
    Err(process::become_root(&workspace.binary("forwarder-bench", Profile::Release), &arguments))
}

/// By npm's own client, once: the package stays where it is until somebody deletes it.
fn fetch(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Ok(());
    }
    ensure!(process::on_path("npm").is_some(), "there is no npm to fetch {TABLES} with");
    println!("fetching {TABLES} (19 MB) by npm into {}", folder.display());
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", TABLES]).current_dir(folder);
    process::run_within(&mut npm, TABLES_LIMIT)
}

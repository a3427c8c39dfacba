//! `forwarder-bench`: what the FIB costs, measured beside what it replaces. Started by
//! `cargo xtask bench fib`.

mod costs;
mod figures;
mod floors;
mod lines;
mod machine;
mod plot;
mod report;
mod speed;
mod writer;

use std::{fs, path::PathBuf, process::ExitCode, thread};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use forwarder::prefix::Family;
use forwarder_common::abi::FIB_UNITS;
use forwarder_tests::{
    cpu,
    netns::Namespace,
    programs::{self, Programs},
    tables::{Table, linux, real, synthetic},
};
use serde_json::json;

use crate::{figures::Figures, speed::Plan};

/// Measures what a lookup in the FIB costs, beside what the kernel offers in its place
#[derive(Debug, Parser)]
#[command(name = "forwarder-bench", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Fib(FibArgs),
}

/// Lookups by BPF_PROG_RUN, memory, loading and updates, for full-size tables
#[derive(Debug, clap::Args)]
struct FibArgs {
    /// What the per-CPU route map buys: lookups while another CPU rewrites route words
    #[arg(long)]
    writer: bool,
    /// Small tables and one round: shows that it works, and measures nothing
    #[arg(long)]
    brief: bool,
    #[arg(long, value_enum, default_value_t = Tables::All)]
    tables: Tables,
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// The CPU that looks up; the next one writes, where something is written meanwhile
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    cpu: usize,
    /// The programs [default: target/bpf/forwarder-bench.o]
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Where the package with the real tables is kept
    #[arg(long, value_name = "FOLDER", default_value = "target/tables")]
    cache: PathBuf,
    /// Where the results go
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tables {
    /// Out of a seed, the same everywhere
    Synthetic,
    /// Of the Internet's shape
    Real,
    /// The real ones with more specific routes added, to the size of the synthetic ones
    Grown,
    All,
}

impl FibArgs {
    fn object(&self) -> Result<Vec<u8>> {
        let Some(path) = &self.object else { return programs::object() };
        fs::read(path).with_context(|| format!("read {}", path.display()))
    }

    fn plan(&self) -> Plan {
        if self.brief { Plan::brief() } else { Plan::full(self.rounds) }
    }
}

fn main() -> ExitCode {
    let Verb::Fib(args) = Cli::parse().verb;
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forwarder-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &FibArgs) -> Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    ensure!(args.cpu + 1 < cpus, "--cpu {} and the next one: there are {cpus} CPUs", args.cpu);
    if args.writer { writer(args) } else { fib(args) }
}

fn fib(args: &FibArgs) -> Result<()> {
    let machine = machine::describe();
    machine::print(&machine);
    let (object, plan) = (args.object()?, args.plan());
    let mut all = Vec::new();
    for table in tables(args)? {
        // A namespace of its own: Linux's table is in it, and goes with it.
        let namespace = Namespace::new().context("make a network namespace (are you root?)")?;
        let figures =
            namespace.run(|| cpu::on(args.cpu, || measure(&object, &table, &plan, args.cpu)))?;
        report::print(&figures);
        if args.brief {
            println!("brief: no figure of this means anything");
        } else {
            report::checks(&figures);
        }
        all.push(figures);
    }
    let attribution = all.iter().any(|figures| figures.is_real).then_some(real::ATTRIBUTION);
    let json = json!({
        "machine": machine,
        "brief": args.brief,
        "attribution": attribution,
        "tables": all.iter().map(report::json).collect::<Vec<_>>(),
    });
    fs::create_dir_all(&args.out)?;
    let path = |name: &str| args.out.join(name);
    fs::write(path("fib.json"), format!("{json:#}\n"))?;
    fs::write(path("fib.svg"), plot::svg(&all, &machine))?;
    if let Some(attribution) = attribution {
        println!("\n{attribution}");
    }
    println!("\n{}\n{}", path("fib.json").display(), path("fib.svg").display());
    Ok(())
}

fn writer(args: &FibArgs) -> Result<()> {
    let machine = machine::describe();
    machine::print(&machine);
    let count = if args.brief { 20_000 } else { synthetic::FULL4 };
    let table = synthetic::table(Family::Inet, count, 1);
    let namespace = Namespace::new().context("make a network namespace (are you root?)")?;
    let (object, plan) = (args.object()?, args.plan());
    let results = namespace.run(|| writer::measure(&object, &table, &plan, args.cpu))?;
    writer::print(&results);
    fs::create_dir_all(&args.out)?;
    let path = args.out.join("fib-writer.json");
    let json = json!({ "machine": machine, "cases": writer::json(&results) });
    fs::write(&path, format!("{json:#}\n"))?;
    println!("\n{}", path.display());
    Ok(())
}

fn tables(args: &FibArgs) -> Result<Vec<Table>> {
    let wants = |tables| args.tables == tables || args.tables == Tables::All;
    let full = [(Family::Inet, synthetic::FULL4), (Family::Inet6, synthetic::FULL6)];
    let mut tables = Vec::new();
    if wants(Tables::Synthetic) {
        let count = |full| if args.brief { full / 50 } else { full };
        tables.extend(full.map(|(family, full)| synthetic::table(family, count(full), 1)));
    }
    if args.brief || args.tables == Tables::Synthetic {
        return Ok(tables);
    }
    match real::tables(&args.cache) {
        Ok(real) => {
            if wants(Tables::Grown) {
                let grown = real.iter().zip(full);
                tables.extend(grown.map(|(real, (_, full))| synthetic::grown(real, full, 1)));
            }
            if wants(Tables::Real) {
                tables.extend(real);
            }
        }
        Err(error) if args.tables == Tables::All => {
            eprintln!("\n!!! NO REAL TABLE: {error:#}\n!!! synthetic tables alone are measured\n");
        }
        Err(error) => return Err(error),
    }
    Ok(tables)
}

/// Everything about one table, in the namespace of this thread.
fn measure(object: &[u8], table: &Table, plan: &Plan, cpu: usize) -> Result<Figures> {
    eprintln!("{} routes, {}: Linux's table", table.routes.len(), table.family);
    let ingress = linux::prepare()?;
    linux::fill(table)?;
    let mut programs = Programs::load(object, ingress)?;
    eprintln!("loading");
    let load = costs::load(&mut programs, table)?;
    let mut fib = programs.new_fib(FIB_UNITS);
    let changes = costs::changes(table);
    fib.apply(&changes, &mut costs::grace)?;
    let memory = costs::memory(&fib, programs.fib_words(), table);
    eprintln!("comparing answers with the oracle");
    let wrong = speed::wrong(&programs, table, plan)?;
    eprintln!("measuring lookups");
    let speed = speed::measure(&programs, table, plan)?;
    eprintln!("measuring updates");
    let update = costs::updates(&mut fib, table, plan.updates)?;
    let live = costs::live(&programs, &mut fib, table, plan.live, cpu)?;
    Ok(Figures {
        family: table.family,
        source: table.source.clone(),
        is_real: !table.source.starts_with("synthetic"),
        routes: table.routes.len(),
        wrong,
        speed,
        memory,
        load,
        update,
        live,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

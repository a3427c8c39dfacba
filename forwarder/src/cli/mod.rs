//! The command line: what can be typed, what it means, and the commands that ask the daemon.

pub mod args;
mod audit;
pub mod error;
mod json;
mod load;
mod output;
mod route;
mod run;
pub mod stats;
mod status;
mod target;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    thread,
};

use clap::{CommandFactory, Parser};

use self::{
    args::{Cli, Command, Global},
    error::CliError,
    json::NeighbourJson,
    output::{Format, Output, say},
    target::Target,
};
use crate::{
    config::Config,
    control::{
        client::{Client, ClientError},
        protocol::PROTOCOL_VERSION,
    },
    prefix::Family,
    route::Selector,
};

/// What is left to do after the command line has done its part.
#[derive(Debug)]
pub enum Outcome {
    /// `run`: the daemon is to be started.
    Run(Box<Config>),
    /// `unload`, where no daemon listens: what a killed one has left is to be removed.
    Unload {
        run_dir: PathBuf,
        name: String,
    },
    Exit(ExitCode),
}

/// Reads the arguments. Ends the process with code 2 where they make no sense, and with 0 after
/// `--help`.
pub fn parse() -> Cli {
    Cli::parse()
}

/// Carries out what was asked, except what only the daemon's code can do.
pub fn dispatch(cli: Cli) -> Outcome {
    perform(cli).unwrap_or_else(|error| Outcome::Exit(error.report()))
}

fn perform(cli: Cli) -> Result<Outcome, CliError> {
    let Cli { global, command } = cli;
    let format = Format::new(global.json, global.pretty);
    let mut output = Output::new(BufWriter::new(io::stdout().lock()), format);
    let connect = || Target::of(&global)?.connect();
    match command {
        Command::Run(args) => return Ok(Outcome::Run(Box::new(args.into_config(&global)?))),
        Command::Unload => return unload(Target::of(&global)?),
        Command::Status => {
            let status = connect()?.status()?;
            output.document(&status, || status::render(&status))?;
        }
        Command::Stats(args) => {
            if let Some(watch) = args.watch() {
                // Connected to anew each time: a daemon that is restarted is found again.
                watch.run(|| Ok(connect()?.stats()?), thread::sleep, &mut output)?;
            } else {
                let snapshot = connect()?.stats()?;
                let text = || stats::render(&snapshot, args.per_cpu);
                output.document(&stats::json(&snapshot), text)?;
            }
        }
        Command::Route { command: Some(command) } => {
            route::run(command, global.family(), connect, output)?;
        }
        Command::Route { command: None } => {
            let ipv4 = global.family().map(|family| family == Family::Inet);
            route::show(&mut connect()?, Selector { ipv4, ..Selector::default() }, output)?;
        }
        Command::Neigh { command: _ } => {
            show_neighbours(&mut connect()?, global.family(), output)?;
        }
        Command::Audit => audit::run(connect()?, output)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "forwarder", &mut script);
            output.bytes(&script)?;
        }
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            let json = serde_json::json!({ "version": version, "protocol": PROTOCOL_VERSION });
            output.document(&json, || format!("forwarder {version}\n"))?;
        }
    }
    Ok(Outcome::Exit(ExitCode::SUCCESS))
}

impl Global {
    /// What `-4` or `-6` asked for.
    fn family(&self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::Inet),
            (_, true) => Some(Family::Inet6),
            _ => None,
        }
    }
}

fn unload(target: Target) -> Result<Outcome, CliError> {
    match target.try_connect() {
        Ok(mut client) => {
            client.unload()?;
            say(format_args!("the forwarder is unloaded: Linux forwards by its own routes"));
            Ok(Outcome::Exit(ExitCode::SUCCESS))
        }
        Err(ClientError::NoDaemon { .. }) => {
            Ok(Outcome::Unload { run_dir: target.run_dir, name: target.name })
        }
        Err(error) => Err(error.into()),
    }
}

fn show_neighbours<W: Write>(
    client: &mut Client,
    family: Option<Family>,
    output: Output<W>,
) -> Result<(), CliError> {
    let mut list = output.list();
    for entry in client.neighbours()? {
        if family.is_none_or(|family| family == Family::of(entry.address)) {
            list.item(&NeighbourJson::from(&entry), &entry)?;
        }
    }
    Ok(list.end()?)
}

//! `forwarder-lab`: the forwarder at work on this machine, between hosts that exist only for it.

mod demo;
mod ping;
mod room;
mod shell;

use std::{env, ffi::OsString, net::IpAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// A lab for the forwarder: two hosts and a router, all of them network namespaces that are gone
/// with the last process in them
#[derive(Debug, Parser)]
#[command(name = "forwarder-lab", version)]
struct Cli {
    /// This is the process inside the room.
    #[arg(long, hide = true)]
    inside: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the forwarder at work, and prove that it was XDP that forwarded
    Demo {
        #[command(flatten)]
        binary: Binary,
    },
    /// Open a shell, or run a command, on the router of a lab, whose links are eth0 and eth1
    Lab {
        #[command(flatten)]
        binary: Binary,
        /// A command in place of the shell
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Run a command on a host of the lab (inside its shell)
    On {
        /// A, B or router
        host: String,
        #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Send echo requests from host A of the lab (inside its shell)
    Ping {
        /// Host B is 198.18.2.2 and 2001:db8:2::2
        destination: IpAddr,
        #[arg(short, long, default_value_t = 5)]
        count: u16,
    },
}

#[derive(Debug, clap::Args)]
struct Binary {
    /// The forwarder's binary [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    forwarder: Option<PathBuf>,
}

impl Binary {
    fn path(self) -> Result<PathBuf> {
        let path = match self.forwarder {
            Some(path) => path,
            None => env::current_exe()?.with_file_name("forwarder"),
        };
        path.canonicalize().with_context(|| {
            format!("there is no {}: build it, or say --forwarder", path.display())
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    dispatch(cli).unwrap_or_else(|error| {
        eprintln!("forwarder-lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    match cli.verb {
        Verb::On { host, command } => shell::on(&host, &command),
        Verb::Ping { destination, count } => ping::from_a(destination, count),
        Verb::Demo { binary } => {
            let forwarder = binary.path()?;
            if cli.inside { demo::run(forwarder) } else { room::enter(room::Interrupt::Ends) }
        }
        Verb::Lab { binary, command } => {
            let forwarder = binary.path()?;
            if cli.inside {
                shell::run(&forwarder, &command)
            } else {
                room::enter(room::Interrupt::IsForTheCommand)
            }
        }
    }
}

//! The daemon and its command line, in one binary.

use std::process::ExitCode;

use forwarder::{
    cli::{self, Outcome},
    daemon,
};

fn main() -> ExitCode {
    match cli::dispatch(cli::parse()) {
        Outcome::Run(config) => report(daemon::start(*config)),
        Outcome::Unload { run_dir, name } => report(daemon::unload_leftovers(&run_dir, &name)),
        Outcome::Exit(code) => code,
    }
}

fn report(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

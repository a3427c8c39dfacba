//! The daemon and its command line, in one binary.

use std::{
    io::{self, Write},
    process::ExitCode,
};

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
        // Where nobody listens, there is nobody to tell that.
        let _ = writeln!(io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

//! Tests that need more than a machine has: skipped with a reason, or an error where all must run.

use std::{
    io::{self, Write},
    process::Command,
    thread,
};

use crate::{daemon, netns::Namespace, routing};

/// Set to `1`, every skip is a failure: a machine that must have everything sets it.
pub const REQUIRE_ALL: &str = "FORWARDER_REQUIRE_ALL";

/// Leaves the test, saying why, unless the machine has what it needs: `require!(skip::lab())`.
#[macro_export]
macro_rules! require {
    ($requirement:expr) => {
        if let Err(reason) = $requirement {
            $crate::skip::skip(&reason);
            return;
        }
    };
}

/// A lab can be built: root, network namespaces, iproute2.
pub fn lab() -> Result<(), String> {
    Namespace::new().map_err(|error| format!("needs root to make network namespaces: {error}"))?;
    command("ip", "-V")
}

/// A lab with the forwarder in it.
pub fn forwarder() -> Result<(), String> {
    lab()?;
    let binary = daemon::binary();
    if binary.is_file() {
        return Ok(());
    }
    Err(format!(
        "needs {}: build it with `cargo xtask build`, or name one in {}",
        binary.display(),
        daemon::BINARY
    ))
}

/// A lab with the forwarder in it, and these programs of FRR and BIRD.
pub fn routing_daemons(programs: &[&str]) -> Result<(), String> {
    forwarder()?;
    match programs.iter().find(|program| routing::find(program).is_none()) {
        None => Ok(()),
        Some(program) => Err(format!("needs {program} (Debian: frr bird2)")),
    }
}

/// A command of this name, which understands this argument.
pub fn command(name: &str, argument: &str) -> Result<(), String> {
    match Command::new(name).arg(argument).output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("needs the command {name}: {error}")),
    }
}

/// As many CPUs online.
pub fn cpus(wanted: usize) -> Result<(), String> {
    let online = thread::available_parallelism().map_or(1, usize::from);
    if online < wanted { Err(format!("needs {wanted} CPUs, has {online}")) } else { Ok(()) }
}

/// Says that the running test is skipped, past libtest's capture.
pub fn skip(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("unnamed");
    assert!(
        std::env::var_os(REQUIRE_ALL).is_none_or(|value| value != "1"),
        "{test} cannot run, and {REQUIRE_ALL} forbids to skip it: {reason}"
    );
    // Where stderr is gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "SKIP {test}: {reason}");
}

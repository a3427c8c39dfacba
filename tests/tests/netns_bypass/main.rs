//! Rules that Linux has for packets between the interfaces, and that XDP would bypass: found at the
//! start, and found while it runs.

mod running;
mod start;

use std::time::Duration;

use anyhow::Result;
use forwarder_tests::{host::Host, process::output};

const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a shell's commands on a host; all of them must succeed.
fn sh(host: &Host, commands: &str) -> Result<String> {
    let mut command = host.command("sh");
    command.args(["-ec", commands]);
    output(command, PATIENCE)
}

/// Has `nft` take these rules.
fn nft(rules: &str) -> String {
    format!("nft -f - <<'END'\n{rules}\nEND")
}

/// Tables of nftables with one chain at this hook, with this in it.
fn chain(family: &str, hook: &str, rules: &str) -> String {
    let kind = if rules.contains("masquerade") { "nat" } else { "filter" };
    nft(&format!(
        "table {family} t {{ chain c {{ type {kind} hook {hook} priority 0; {rules} }}; }}"
    ))
}

//! The commands below `route`.

use std::{
    io::Write,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    args::{RouteArgs, RouteCommand},
    error::CliError,
    json::RouteJson,
    load,
    output::{List, Output, Progress, say},
};
use crate::{
    control::client::{Client, ClientError},
    prefix::Family,
    route::{
        Existing, NextHop, PrefixMatch, Route, RouteEntry, RouteState, Selector, describe, grammar,
    },
};

/// How often `--wait` looks.
const WAIT_STEP: Duration = Duration::from_millis(50);

/// Carries a command out. What was typed is read before `connect` is called.
pub(super) fn run<W: Write>(
    command: RouteCommand,
    family: Option<Family>,
    connect: impl FnOnce() -> Result<Client, CliError>,
    output: Output<W>,
) -> Result<(), CliError> {
    match command {
        RouteCommand::Add(args) => add(&args, family, Existing::Refuse, connect),
        RouteCommand::Replace(args) => add(&args, family, Existing::Replace, connect),
        RouteCommand::Append(args) => add(&args, family, Existing::Append, connect),
        RouteCommand::Del { words } => {
            let selector = grammar::exact(&borrowed(&words), family)?;
            connect()?.route_delete(selector)?;
            Ok(())
        }
        RouteCommand::Show { words, per_cpu, skipped } => {
            let selector = grammar::selector(&borrowed(&words), family)?;
            let selector = Selector { skipped, ..selector };
            stream(&mut connect()?, selector, per_cpu, output)
        }
        RouteCommand::Get { address } => {
            let destination = grammar::address(&address, family)?;
            let entries = connect()?.route_get(destination)?;
            if entries.is_empty() {
                return Err(CliError::Refused(format!(
                    "no route to {destination}: Linux decides where its packets go"
                )));
            }
            print(&entries, true, output)
        }
        RouteCommand::Flush { words } => {
            let selectors = flush_selectors(&words, family)?;
            let mut client = connect()?;
            let mut count = 0;
            for selector in selectors {
                count += client.route_flush(selector)?;
            }
            say(format_args!("{count} {} removed", routes(count)));
            Ok(())
        }
        RouteCommand::Load { file, replace, flush, xdp_only } => {
            let existing = match (replace, flush) {
                (_, true) => Existing::Flush,
                (true, _) => Existing::Replace,
                _ => Existing::Refuse,
            };
            load(&file, family, (existing, xdp_only), connect)
        }
    }
}

/// What `route` alone does.
pub(super) fn show<W: Write>(
    client: &mut Client,
    selector: Selector,
    output: Output<W>,
) -> Result<(), CliError> {
    stream(client, selector, false, output)
}

fn stream<W: Write>(
    client: &mut Client,
    selector: Selector,
    per_cpu: bool,
    output: Output<W>,
) -> Result<(), CliError> {
    let mut list = output.list();
    client.route_stream(selector, |entries| print_some(entries, per_cpu, &mut list))?;
    Ok(list.end()?)
}

/// Entries of one prefix lie side by side. What single CPUs have of their own is only hinted at
/// where it is not asked for, and where there is something beside it.
fn print<W: Write>(
    entries: &[RouteEntry],
    per_cpu: bool,
    output: Output<W>,
) -> Result<(), CliError> {
    let mut list = output.list();
    print_some(entries, per_cpu, &mut list)?;
    Ok(list.end()?)
}

fn print_some<W: Write>(
    entries: &[RouteEntry],
    per_cpu: bool,
    list: &mut List<W>,
) -> Result<(), CliError> {
    let of_one = |a: &RouteEntry, b: &RouteEntry| a.route.prefix == b.route.prefix;
    for entries in entries.chunk_by(of_one) {
        // Ours come first, and Linux's behind them.
        let of_linux = entries.iter().position(|entry| entry.linux.is_some());
        let (ours, linux) = entries.split_at(of_linux.unwrap_or(entries.len()));
        match ours {
            [entry, others @ ..] if !per_cpu && entry.route.cpus.is_none() => {
                list.item(&RouteJson::new(entry, others), &entry.lines(others))?;
            }
            ours => {
                for entry in ours {
                    list.item(&RouteJson::new(entry, &[]), entry)?;
                }
            }
        }
        for entry in linux {
            list.item(&RouteJson::new(entry, &[]), entry)?;
        }
    }
    Ok(())
}

fn add(
    args: &RouteArgs,
    family: Option<Family>,
    existing: Existing,
    connect: impl FnOnce() -> Result<Client, CliError>,
) -> Result<(), CliError> {
    let route = grammar::route(&borrowed(&args.words), family)?;
    let mut client = connect()?;
    let entry = client.route_add(route, existing, args.xdp_only)?;
    if entry.forwards() {
        return Ok(());
    }
    match args.wait {
        None => {
            say(format_args!("{}: {}", entry.route, state(&entry)));
            Ok(())
        }
        Some(seconds) => wait(&mut client, &entry.route, seconds),
    }
}

/// Waits until the route forwards by all of its next hops.
fn wait(client: &mut Client, route: &Route, seconds: u64) -> Result<(), CliError> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let entry = entry_of(client, route)?.ok_or_else(|| {
            CliError::Refused(format!("{route}: somebody has removed it meanwhile"))
        })?;
        if entry.forwards() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CliError::Refused(format!(
                "{route} does not forward after {seconds} s: {} (the route stays; see `forwarder neigh show`)",
                state(&entry)
            )));
        }
        sleep(WAIT_STEP);
    }
}

fn entry_of(client: &mut Client, route: &Route) -> Result<Option<RouteEntry>, ClientError> {
    let prefix = Some(PrefixMatch::Exact(route.prefix));
    let entries = client.route_show(Selector { prefix, ..Selector::default() })?;
    Ok(entries.into_iter().find(|entry| entry.route.cpus == route.cpus))
}

/// Of each next hop, where there are several.
fn state(entry: &RouteEntry) -> String {
    let one = |(next_hop, state): (&NextHop, &RouteState)| {
        format!("{} {state}", describe(std::slice::from_ref(next_hop)))
    };
    match &entry.states[..] {
        [state] => state.to_string(),
        states => entry.route.next_hops.iter().zip(states).map(one).collect::<Vec<_>>().join("; "),
    }
}

/// The daemon takes no empty selector, which would mean everything; `all` is said family by family.
fn flush_selectors(words: &[String], family: Option<Family>) -> Result<Vec<Selector>, CliError> {
    if words.is_empty() {
        return Err(CliError::Usage(
            "nothing says which routes to remove: write for example `route flush dev eth1`, `route flush root 198.18.0.0/15` or `route flush all`".to_owned(),
        ));
    }
    let selector = grammar::selector(&borrowed(words), family)?;
    if !selector.is_empty() {
        return Ok(vec![selector]);
    }
    let of_family = |ipv4| Selector { ipv4: Some(ipv4), ..Selector::default() };
    Ok(vec![of_family(true), of_family(false)])
}

fn load(
    file: &Path,
    family: Option<Family>,
    (existing, xdp_only): (Existing, bool),
    connect: impl FnOnce() -> Result<Client, CliError>,
) -> Result<(), CliError> {
    let mut progress = Progress::on_terminal();
    let batch = load::read_file(file, family, existing, &mut progress)?;
    let total = batch.routes.len();
    let sent = |count| progress.show(format_args!("{count} of {total} routes sent"));
    let answer = connect()?.route_load(&batch.routes, existing, xdp_only, sent);
    progress.clear();
    match answer {
        Ok(count) => {
            let skipped = match batch.skipped {
                0 => String::new(),
                skipped => format!(" ({skipped} of Linux's left out: forwarder follows them)"),
            };
            say(format_args!("{count} {} loaded{skipped}", routes(count)));
            Ok(())
        }
        Err(ClientError::Refused(refusal)) => {
            let blamed =
                refusal.index.and_then(|index| batch.blame(index, refusal.message.clone()));
            Err(match blamed {
                Some(line) => line.in_file(file),
                None => CliError::Refused(format!("{refusal}; nothing was changed")),
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn routes(count: u64) -> &'static str {
    if count == 1 { "route" } else { "routes" }
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests;

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
    output::{Output, say},
};
use crate::{
    control::client::{Client, ClientError},
    prefix::Family,
    route::{Existing, PrefixMatch, Route, RouteEntry, RouteState, Selector, grammar},
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
        RouteCommand::Del { words } => {
            let selector = grammar::exact(&borrowed(&words), family)?;
            connect()?.route_delete(selector)?;
            Ok(())
        }
        RouteCommand::Show { words } => {
            let selector = grammar::selector(&borrowed(&words), family)?;
            show(&mut connect()?, selector, output)
        }
        RouteCommand::Get { address } => {
            let destination = grammar::address(&address, family)?;
            match connect()?.route_get(destination)? {
                Some(entry) => print(std::slice::from_ref(&entry), output),
                None => Err(CliError::Refused(format!(
                    "no route to {destination}: Linux decides where its packets go"
                ))),
            }
        }
        RouteCommand::Flush { words } => {
            let selectors = flush_selectors(&words, family)?;
            let mut client = connect()?;
            let mut count = 0;
            for selector in selectors {
                count += client.route_flush(selector)?;
            }
            say(format_args!("{count} routes removed"));
            Ok(())
        }
        RouteCommand::Load { file, replace } => {
            let existing = if replace { Existing::Replace } else { Existing::Refuse };
            load(&file, family, existing, connect)
        }
    }
}

/// What `route` alone does.
pub(super) fn show<W: Write>(
    client: &mut Client,
    selector: Selector,
    output: Output<W>,
) -> Result<(), CliError> {
    print(&client.route_show(selector)?, output)
}

fn print<W: Write>(entries: &[RouteEntry], output: Output<W>) -> Result<(), CliError> {
    let mut list = output.list();
    for entry in entries {
        list.item(&RouteJson::from(entry), entry)?;
    }
    Ok(list.end()?)
}

fn add(
    args: &RouteArgs,
    family: Option<Family>,
    existing: Existing,
    connect: impl FnOnce() -> Result<Client, CliError>,
) -> Result<(), CliError> {
    let route = grammar::route(&borrowed(&args.words), family)?;
    let mut client = connect()?;
    let entry = client.route_add(route, existing)?;
    if entry.state.forwards() {
        return Ok(());
    }
    match args.wait {
        None => {
            say(format_args!("{}: {}", entry.route, entry.state));
            Ok(())
        }
        Some(seconds) => wait(&mut client, &entry.route, seconds),
    }
}

/// Waits until the route forwards.
fn wait(client: &mut Client, route: &Route, seconds: u64) -> Result<(), CliError> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let state = state_of(client, route)?.ok_or_else(|| {
            CliError::Refused(format!("{route}: somebody has removed it meanwhile"))
        })?;
        if state.forwards() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CliError::Refused(format!(
                "{route} does not forward after {seconds} s: {state} (the route stays; see `forwarder neigh show`)"
            )));
        }
        sleep(WAIT_STEP);
    }
}

fn state_of(client: &mut Client, route: &Route) -> Result<Option<RouteState>, ClientError> {
    let prefix = Some(PrefixMatch::Exact(route.prefix));
    let entries = client.route_show(Selector { prefix, ..Selector::default() })?;
    Ok(entries.into_iter().next().map(|entry| entry.state))
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
    existing: Existing,
    connect: impl FnOnce() -> Result<Client, CliError>,
) -> Result<(), CliError> {
    let batch = load::read_file(file, family, existing)?;
    match connect()?.route_load(&batch.routes, existing) {
        Ok(count) => {
            say(format_args!("{count} routes loaded"));
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

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests;

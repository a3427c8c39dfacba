//! A table of iptables as the kernel hands it out, into rules of `bypass`: pure, and without a
//! panic on any bytes.
//!
//! A table is one piece of memory: entries one after the other, each with conditions, matches and a
//! target. A chain that a hook enters starts and ends where the table's description says; any other
//! starts behind an entry that only bears its name, and is jumped to by its place.

use std::{collections::BTreeMap, io};

use crate::bypass::{
    Families,
    rules::{
        Chain, ChainId, Direction, EFFECTS, Entry, NAME_LEN, Named, PURE_MATCHES, Rule, Ruleset,
        Step, Which,
    },
};

/// Bytes of a table's name (`XT_TABLE_MAXNAMELEN`).
pub(super) const TABLE_NAME_LEN: usize = 32;
/// Bytes of `ipt_getinfo`, and of `ipt_get_entries` before its entries.
pub(super) const INFO_LEN: usize = 84;
pub(super) const ENTRIES_AT: usize = 40;
/// Bytes of `xt_entry_match` and `xt_entry_target` before their data, and where their name is.
const EXTENSION_LEN: usize = 32;
const EXTENSION_NAME: std::ops::Range<usize> = 2..31;
/// The target that bears the name of a chain.
const CHAIN_NAME: &str = "ERROR";
const HOOKS: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
/// Hooks on the way of a forwarded packet.
const FORWARDED: [usize; 3] = [0, 2, 4];

/// What differs between `ipt_entry` and `ip6t_entry`: where things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) families: Families,
    /// The command that made the rules.
    pub(super) command: &'static str,
    in_name: usize,
    flags: usize,
    target_offset: usize,
    len: usize,
}

pub(super) const FORM4: Form = Form {
    families: Families::V4,
    command: "iptables-legacy",
    in_name: 16,
    flags: 83,
    target_offset: 88,
    len: 112,
};

pub(super) const FORM6: Form = Form {
    families: Families::V6,
    command: "ip6tables-legacy",
    in_name: 64,
    flags: 132,
    target_offset: 140,
    len: 168,
};

/// `ipt_getinfo`: where chains start and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// First entry and last, the policy, of each hook that the table is called from.
    hooks: [Option<(usize, usize)>; 5],
    /// Bytes of all entries.
    pub(super) size: usize,
}

pub(super) fn info(bytes: &[u8]) -> Option<Info> {
    let number = |at: usize| number(bytes, TABLE_NAME_LEN + 4 * at);
    let valid = number(0)?;
    let mut hooks = [None; 5];
    for (hook, ends) in hooks.iter_mut().enumerate() {
        if valid & (1 << hook) != 0 {
            *ends = Some((number(1 + hook)?, number(6 + hook)?));
        }
    }
    Some(Info { hooks, size: number(12)? })
}

/// Adds the rules of one table.
///
/// # Errors
///
/// The entries are not what entries are.
pub(super) fn read(
    form: &Form,
    table: &str,
    info: &Info,
    entries: &[u8],
    ruleset: &mut Ruleset,
) -> io::Result<()> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a malformed table of iptables");
    let all = split(form, entries).ok_or_else(malformed)?;
    let chain = |name: &str| ChainId {
        family: form.command.to_owned(),
        table: table.to_owned(),
        name: name.to_owned(),
    };
    let starts = starts(info, &all);
    let (mut current, mut number) = (None, 0);
    for it in &all {
        if let Some(name) = starts.get(&it.at) {
            let id = chain(name);
            let hook = info.hooks.iter().position(|hook| hook.is_some_and(|(at, _)| at == it.at));
            let entry = hook.filter(|hook| FORWARDED.contains(hook)).map(|_| Entry {
                families: form.families,
                bound: None,
                policy: None,
            });
            ruleset.chains.insert(id.clone(), Chain { entry, rules: Vec::new() });
            (current, number) = (Some(id), 0);
        }
        if it.target == CHAIN_NAME {
            current = None;
            continue;
        }
        let id = current.as_ref().ok_or_else(malformed)?;
        let added = ruleset.chains.entry(id.clone()).or_default();
        if info.hooks.iter().flatten().any(|(_, policy)| *policy == it.at) {
            if let (Some(entry), Some(Standard::Does(_))) = (&mut added.entry, it.standard()) {
                entry.policy = Some(policy(form, id));
            }
            current = None;
            continue;
        }
        number += 1;
        let steps = steps(it, |at| starts.get(&at).map(|name| chain(name)));
        added.rules.push(Rule { named: named(form, id, number), steps });
    }
    Ok(())
}

fn named(form: &Form, ChainId { table, name, .. }: &ChainId, number: usize) -> Named {
    let command = form.command;
    Named {
        what: format!("rule {number} ({EFFECTS}) of {command} chain {name} in table {table}"),
        remedy: format!("remove it with `{command} -t {table} -D {name} {number}`"),
    }
}

fn policy(form: &Form, ChainId { table, name, .. }: &ChainId) -> Named {
    let command = form.command;
    Named {
        what: format!("policy DROP of {command} chain {name} in table {table}"),
        remedy: format!("set it by `{command} -t {table} -P {name} ACCEPT`"),
    }
}

/// The first entry of each chain, and its name.
fn starts(info: &Info, all: &[TableEntry<'_>]) -> BTreeMap<usize, String> {
    let hooks = info.hooks.iter().zip(HOOKS);
    let mut starts: BTreeMap<usize, String> =
        hooks.filter_map(|(hook, name)| hook.map(|(at, _)| (at, name.to_owned()))).collect();
    for pair in all.windows(2) {
        if pair[0].target == CHAIN_NAME {
            starts.insert(pair[1].at, text(pair[0].data).to_owned());
        }
    }
    starts
}

struct TableEntry<'a> {
    at: usize,
    next: usize,
    conditions: Vec<Step>,
    matches: Vec<&'a str>,
    target: &'a str,
    data: &'a [u8],
}

enum Standard {
    Nothing,
    /// On to the next: a rule without a target, which somebody has for its counter.
    Counts,
    Does(&'static str),
    Goes(usize),
}

impl TableEntry<'_> {
    /// The verdict of a target without a name.
    fn standard(&self) -> Option<Standard> {
        // `-NF_* - 1`, and `XT_RETURN`.
        const DROP: i32 = -1;
        const ACCEPT: i32 = -2;
        const QUEUE: i32 = -4;
        const RETURN: i32 = -5;
        if !self.target.is_empty() {
            return None;
        }
        let verdict = self.data.first_chunk().copied().map(i32::from_ne_bytes);
        Some(match verdict {
            Some(ACCEPT | RETURN) => Standard::Nothing,
            Some(DROP) => Standard::Does("DROP"),
            Some(QUEUE) => Standard::Does("QUEUE"),
            Some(verdict) => match usize::try_from(verdict) {
                Ok(at) if at == self.next => Standard::Counts,
                Ok(at) => Standard::Goes(at),
                Err(_) => Standard::Does("?"),
            },
            None => Standard::Does("?"),
        })
    }
}

fn steps(it: &TableEntry<'_>, chain: impl Fn(usize) -> Option<ChainId>) -> Vec<Step> {
    let mut steps = it.conditions.clone();
    let counts = it.matches.iter().filter(|name| !PURE_MATCHES.contains(*name));
    steps.extend(counts.map(|name| Step::Does((*name).to_owned())));
    steps.extend(match it.standard() {
        None => Some(Step::Does(it.target.to_owned())),
        Some(Standard::Nothing) => None,
        Some(Standard::Counts) => Some(Step::Does("counter".to_owned())),
        Some(Standard::Does(effect)) => Some(Step::Does(effect.to_owned())),
        Some(Standard::Goes(at)) => {
            Some(chain(at).map_or_else(|| Step::Does("jump".to_owned()), Step::Goes))
        }
    });
    steps
}

/// `None`: they are not what entries are.
fn split<'a>(form: &Form, entries: &'a [u8]) -> Option<Vec<TableEntry<'a>>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let rest = entries.get(at..)?;
        let offsets = |offset: usize| {
            rest.get(offset..)?.first_chunk().copied().map(u16::from_ne_bytes).map(usize::from)
        };
        let target_at = offsets(form.target_offset)?;
        let len = offsets(form.target_offset + 2)?;
        if len < target_at + EXTENSION_LEN || target_at < form.len {
            return None;
        }
        let entry = rest.get(..len)?;
        let target = entry.get(target_at..)?;
        all.push(TableEntry {
            at,
            next: at + len,
            conditions: conditions(form, entry)?,
            matches: matches(entry.get(form.len..target_at)?)?,
            target: text(target.get(EXTENSION_NAME)?),
            data: target.get(EXTENSION_LEN..)?,
        });
        at += len;
    }
    Some(all)
}

fn conditions(form: &Form, entry: &[u8]) -> Option<Vec<Step>> {
    let flags = *entry.get(form.flags)?;
    let mut conditions = Vec::new();
    for (number, direction) in [(0, Direction::In), (1, Direction::Out)] {
        let name = form.in_name + number * NAME_LEN;
        let mask = entry.get(name + 2 * NAME_LEN..)?.get(..NAME_LEN)?;
        let compared = mask.iter().take_while(|byte| **byte == 0xff).count();
        if compared > 0 {
            let which = Which::Name(entry.get(name..)?.get(..compared)?.to_vec());
            let negated = flags & (1 << number) != 0;
            conditions.push(Step::If { direction, which: vec![which], negated });
        }
    }
    Some(conditions)
}

/// Their names.
fn matches(mut list: &[u8]) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    while !list.is_empty() {
        let len = usize::from(u16::from_ne_bytes(*list.first_chunk()?));
        if len < EXTENSION_LEN {
            return None;
        }
        names.push(text(list.get(EXTENSION_NAME)?));
        list = list.get(len..)?;
    }
    Some(names)
}

/// Up to the first zero.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or("?")
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)?;
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests;

//! The kernel's nftables, as rules of `bypass`: what `nft` has put there, and `iptables` that is
//! built upon it.

mod expression;
mod sets;
mod tables;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use self::{
    expression::Machine,
    sets::{Elements, SetId, elements, plain_set},
    tables::{HEADER_LEN, chain, generation, rule},
};
use super::{
    socket::Socket,
    wire::{Message, Request, malformed},
};
use crate::bypass::rules::{Chain, Rule, Ruleset};

/// `NFNLGRP_NFTABLES`: every change of rules.
pub(super) const GROUP: u32 = 7;
/// How often rules are read that change while we do.
const ATTEMPTS_MAX: u32 = 8;

// `linux/netfilter/nfnetlink.h`, `nf_tables.h`
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_NEWSET: u16 = 9;
const NFT_MSG_GETSET: u16 = 10;
const NFT_MSG_NEWSETELEM: u16 = 12;
const NFT_MSG_GETSETELEM: u16 = 13;
const NFT_MSG_GETGEN: u16 = 16;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;

/// A request about all families, or one.
fn request(message: u16, family: u8) -> Request {
    let mut header = [0; HEADER_LEN];
    header[0] = family;
    Request::new(kind(message), 0, &header)
}

const fn kind(message: u16) -> u16 {
    NFNL_SUBSYS_NFTABLES << 8 | message
}

/// The number of the state that the rules are in; `None` where the kernel has no nftables.
pub(super) async fn read_generation(socket: &mut Socket) -> io::Result<Option<u32>> {
    match socket.request(request(NFT_MSG_GETGEN, 0), |message| generation(message.body)).await {
        Ok(answers) => Ok(answers.into_iter().next()),
        // The kernel has nothing under this number.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All rules, of one moment.
pub(super) async fn read(socket: &mut Socket) -> io::Result<Ruleset> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(before) = read_generation(socket).await? else { return Ok(Ruleset::default()) };
        let ruleset = read_once(socket).await?;
        if read_generation(socket).await? == Some(before) {
            return Ok(ruleset);
        }
    }
    Err(io::Error::other("its rules changed each time while they were read"))
}

async fn read_once(socket: &mut Socket) -> io::Result<Ruleset> {
    let chains = list(socket, NFT_MSG_GETCHAIN, NFT_MSG_NEWCHAIN).await?;
    let rules = list(socket, NFT_MSG_GETRULE, NFT_MSG_NEWRULE).await?;
    let sets = list(socket, NFT_MSG_GETSET, NFT_MSG_NEWSET).await?;
    let plain: BTreeSet<_> = sets.iter().filter_map(|body| plain_set(body)).collect();
    let mut known = BTreeMap::new();
    for set in interface_sets(&rules, &plain) {
        if let Some(elements) = read_elements(socket, &set).await? {
            known.insert(set, elements);
        }
    }
    ruleset(&chains, &rules, &known)
}

async fn list(socket: &mut Socket, get: u16, new: u16) -> io::Result<Vec<Vec<u8>>> {
    let body = |message: &Message<'_>| (message.kind == kind(new)).then(|| message.body.to_vec());
    socket.dump(request(get, 0), body).await
}

/// `None`: not all of them are understood.
async fn read_elements(socket: &mut Socket, set: &SetId) -> io::Result<Option<Elements>> {
    let zero_ended = |text: &str| [text.as_bytes(), &[0]].concat();
    let request = request(NFT_MSG_GETSETELEM, set.family)
        .attribute(NFTA_SET_ELEM_LIST_TABLE, &zero_ended(&set.table))
        .attribute(NFTA_SET_ELEM_LIST_SET, &zero_ended(&set.name));
    let part = |message: &Message<'_>| {
        (message.kind == kind(NFT_MSG_NEWSETELEM)).then(|| elements(set, message.body))
    };
    match socket.dump(request, part).await {
        Ok(parts) => {
            let parts: Option<Vec<Elements>> = parts.into_iter().collect();
            Ok(parts.map(|parts| Elements(parts.into_iter().flat_map(|part| part.0).collect())))
        }
        // It has gone meanwhile: the generation tells.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Those that a rule asks for an interface.
fn interface_sets(rules: &[Vec<u8>], plain: &BTreeSet<SetId>) -> BTreeSet<SetId> {
    let mut asked = BTreeSet::new();
    for rule in rules.iter().filter_map(|body| rule(body)) {
        let note = |set: &SetId| {
            asked.extend(plain.get(set).cloned());
            None
        };
        Machine::new(rule.family, rule.table, note).run(rule.expressions);
    }
    asked
}

/// # Errors
///
/// A message is not understood: nobody knows what it would have said.
fn ruleset(
    chains: &[Vec<u8>],
    rules: &[Vec<u8>],
    sets: &BTreeMap<SetId, Elements>,
) -> io::Result<Ruleset> {
    let mut ruleset = Ruleset::default();
    for body in chains {
        let (id, entry) = chain(body).ok_or_else(malformed)?;
        ruleset.chains.insert(id, Chain { entry, rules: Vec::new() });
    }
    for body in rules {
        let rule = rule(body).ok_or_else(malformed)?;
        let steps = Machine::new(rule.family, rule.table, |set: &SetId| sets.get(set))
            .run(rule.expressions);
        let chain = ruleset.chains.entry(rule.chain).or_default();
        chain.rules.push(Rule { named: rule.named, steps });
    }
    Ok(ruleset)
}

#[cfg(test)]
mod tests;

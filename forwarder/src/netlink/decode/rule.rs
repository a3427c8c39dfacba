//! Policy rules (`linux/fib_rules.h`).

use std::fmt::Write as _;

use super::{AF_INET, AF_INET6, ip};
use crate::netlink::{
    event::Rule,
    wire::{Attributes, u32_at},
};

/// `fib_rule_hdr`.
pub(in crate::netlink) const RULE_HEADER_LEN: usize = 12;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const LOOPBACK: &str = "lo";
/// Nothing is suppressed (`-1`).
const NOT_SUPPRESSED: u32 = u32::MAX;

/// What a rule is to packets that are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::netlink) enum RuleKind {
    /// One of those that every machine has, with this priority.
    Own { is_ipv4: bool, priority: u32 },
    /// None of these packets matches it.
    Harmless,
    /// By it they may go another way than by the local and then the main table.
    Other(Rule),
}

/// Rules of every machine, and the tables that they lead to.
pub(in crate::netlink) const LOCAL_PRIORITY: u32 = 0;
pub(in crate::netlink) const MAIN_PRIORITY: u32 = 32766;
const DEFAULT_PRIORITY: u32 = 32767;
const OWN: [(u32, u8); 3] = [
    (LOCAL_PRIORITY, libc::RT_TABLE_LOCAL),
    (MAIN_PRIORITY, libc::RT_TABLE_MAIN),
    (DEFAULT_PRIORITY, libc::RT_TABLE_DEFAULT),
];

pub(in crate::netlink) fn rule(body: &[u8]) -> Option<RuleKind> {
    let &[family, dst_len, src_len, tos, table, _, _, action, ..] = body else { return None };
    if ![AF_INET, AF_INET6].contains(&family) {
        return None;
    }
    let is_ipv4 = family == AF_INET;
    let attributes = Attributes::after(RULE_HEADER_LEN, body);
    let inverted = u32_at(body, 8)? & FIB_RULE_INVERT != 0;
    let priority = attributes.u32(FRA_PRIORITY).unwrap_or(0);
    let table = attributes.u32(FRA_TABLE).unwrap_or(u32::from(table));
    // Whatever a newer kernel can match by is not here, so it makes a rule another one.
    let is_plain_attribute = |(kind, value): (u16, &[u8])| match kind {
        FRA_PRIORITY | FRA_TABLE | FRA_PROTOCOL => true,
        FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => u32_at(value, 0) == Some(NOT_SUPPRESSED),
        _ => false,
    };
    let is_plain = (dst_len, src_len, tos, inverted) == (0, 0, 0, false)
        && action == FR_ACT_TO_TBL
        && attributes.iter().all(is_plain_attribute);
    if is_plain && OWN.iter().any(|own| (own.0, u32::from(own.1)) == (priority, table)) {
        return Some(RuleKind::Own { is_ipv4, priority });
    }
    // Enslaved interfaces alone go by their device's table, and we forward on none.
    let l3mdev = attributes.get(FRA_L3MDEV).is_some_and(|value| value.first() != Some(&0));
    // What a machine sends itself comes in by the loopback interface.
    let is_sent = attributes.text(FRA_IIFNAME) == Some(LOOPBACK);
    // Nothing marks a packet before XDP.
    let is_marked = attributes.u32(FRA_FWMARK).is_some_and(|mark| mark != 0)
        && attributes.u32(FRA_FWMASK).is_none_or(|mask| mask != 0);
    if !inverted && (l3mdev || is_sent || is_marked) {
        return Some(RuleKind::Harmless);
    }
    let text = text(body, attributes, table);
    Some(RuleKind::Other(Rule { is_ipv4, priority, text }))
}

/// `priority 100: from 198.18.0.0/16 lookup 7`, in short.
fn text(body: &[u8], attributes: Attributes<'_>, table: u32) -> String {
    let (family, dst_len, src_len) = (
        body.first().copied().unwrap_or_default(),
        body.get(1).copied().unwrap_or_default(),
        body.get(2).copied().unwrap_or_default(),
    );
    let mut text = String::from("from ");
    // Writing to a string cannot fail.
    let _ = match attributes.get(FRA_SRC).and_then(|source| ip(family, source)) {
        Some(source) => write!(text, "{source}/{src_len}"),
        None => write!(text, "all"),
    };
    if let Some(destination) = attributes.get(FRA_DST).and_then(|it| ip(family, it)) {
        let _ = write!(text, " to {destination}/{dst_len}");
    }
    for (word, kind) in [("iif", FRA_IIFNAME), ("oif", FRA_OIFNAME)] {
        if let Some(name) = attributes.text(kind) {
            let _ = write!(text, " {word} {name}");
        }
    }
    if let Some(mark) = attributes.u32(FRA_FWMARK) {
        let _ = write!(text, " fwmark {mark:#x}");
    }
    let _ = write!(text, " lookup {table}");
    text
}

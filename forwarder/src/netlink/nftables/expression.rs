//! The expressions of a rule, as the kernel has them, into what matters of them here: pure, and
//! without a panic on any bytes.
//!
//! A rule is a small program: expressions load something into registers, compare it, and do
//! things. Registers that hold an interface or a family are followed; every other value is taken
//! to be anything.

use std::collections::BTreeMap;

use super::{
    sets::{Elements, SetId},
    tables::chain_id,
};
use crate::{
    bypass::{
        Families,
        rules::{Direction, NAME_LEN, PURE_MATCHES, Step, Verdict, Which},
    },
    netlink::wire::{Attributes, u32_at},
};

// `linux/netfilter/nf_tables.h`
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_SREG: u16 = 2;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFTA_LOOKUP_FLAGS: u16 = 5;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFTA_EXTHDR_SREG: u16 = 7;
/// Of `match` and `target` alike: the name of an extension of iptables.
const NFTA_COMPAT_NAME: u16 = 1;
const NFT_LOOKUP_F_INV: u32 = 1;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_REG_VERDICT: u32 = 0;

const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_DADDR: u32 = 1 << 1;

const NFT_META_PROTOCOL: u32 = 1;
const NFT_META_IIF: u32 = 4;
const NFT_META_OIF: u32 = 5;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_NFPROTO: u32 = 15;

/// One expression, by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expression<'a> {
    name: &'a str,
    data: Attributes<'a>,
}

impl<'a> Expression<'a> {
    /// `None`: it is cut off, or no expression.
    pub(super) fn read(element: &'a [u8]) -> Option<Self> {
        let attributes = Attributes::after(0, element);
        let name = attributes.text(NFTA_EXPR_NAME)?;
        // Some have nothing to say (`notrack`).
        let data = attributes.nested(NFTA_EXPR_DATA).unwrap_or(Attributes::after(0, &[]));
        Some(Self { name, data })
    }
}

/// What a register holds that we follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Index(Direction),
    Name(Direction),
    /// `NFPROTO_*`, a byte.
    Nfproto,
    /// An EtherType.
    Protocol,
    /// `RTN_*` of the destination.
    DestinationType,
}

/// The words that matter of an expression that puts a value into a register.
fn destination_of(name: &str) -> Option<u16> {
    Some(match name {
        "meta" | "payload" | "exthdr" | "rt" | "numgen" | "osf" | "xfrm" => 1,
        "socket" | "tunnel" | "hash" | "bitwise" | "byteorder" => 2,
        _ => return None,
    })
}

/// A rule at work: what it has done so far, and what its registers hold.
pub(super) struct Machine<'a, S> {
    family: u8,
    table: &'a str,
    /// Elements of a set, where all of them are known and stay as they are.
    sets: S,
    /// By the place of their first four bytes.
    registers: BTreeMap<u32, Value>,
    steps: Vec<Step>,
    /// It has a counter, as every rule of `iptables` has one.
    counts: bool,
    /// It says what becomes of the packet, be it only that nothing does.
    decides: bool,
}

impl<'a, S: FnMut(&SetId) -> Option<&'a Elements>> Machine<'a, S> {
    pub(super) fn new(family: u8, table: &'a str, sets: S) -> Self {
        let (registers, steps) = (BTreeMap::new(), Vec::new());
        Self { family, table, sets, registers, steps, counts: false, decides: false }
    }

    /// What is not understood counts as done.
    pub(super) fn run(mut self, list: Attributes<'_>) -> Vec<Step> {
        for (_, element) in list.iter() {
            match Expression::read(element) {
                Some(expression) => self.expression(expression),
                None => self.does("?"),
            }
        }
        // Then somebody wants to know the number.
        if self.counts && !self.decides {
            self.does("counter");
        }
        self.steps
    }

    fn expression(&mut self, expression: Expression<'_>) {
        let Expression { name, data } = expression;
        match name {
            "meta" => self.meta(data),
            "cmp" => self.compare(data),
            "lookup" => self.lookup(data),
            "immediate" => self.immediate(data),
            "fib" => self.fib(data),
            "range" => {}
            "counter" => self.counts = true,
            "payload" if data.get(NFTA_PAYLOAD_SREG).is_some() => self.does("payload set"),
            "exthdr" if data.get(NFTA_EXTHDR_SREG).is_some() => self.does("exthdr set"),
            "match" => match data.text(NFTA_COMPAT_NAME) {
                Some(name) if PURE_MATCHES.contains(&name) => {}
                other => self.does(other.unwrap_or("match")),
            },
            "target" => self.does(data.text(NFTA_COMPAT_NAME).unwrap_or("target")),
            _ => match destination_of(name).and_then(|attribute| number(data, attribute)) {
                Some(register) => self.load(Some(register), None),
                None => self.does(effect(name)),
            },
        }
    }

    fn does(&mut self, effect: &str) {
        self.decides = true;
        self.steps.push(Step::Does(effect.to_owned()));
        // It may have written to any register.
        self.registers.clear();
    }

    /// Whatever is written may be as long as all registers from there on.
    fn load(&mut self, register: Option<u32>, value: Option<Value>) {
        let at = register.and_then(place);
        self.registers.retain(|held, _| at.is_some_and(|at| *held < at));
        if let (Some(at), Some(value)) = (at, value) {
            self.registers.insert(at, value);
        }
    }

    fn held(&self, register: Option<u32>) -> Option<Value> {
        self.registers.get(&place(register?)?).copied()
    }

    fn meta(&mut self, data: Attributes<'_>) {
        let Some(register) = number(data, NFTA_META_DREG) else { return self.does("meta set") };
        let value = match number(data, NFTA_META_KEY) {
            Some(NFT_META_IIF) => Some(Value::Index(Direction::In)),
            Some(NFT_META_OIF) => Some(Value::Index(Direction::Out)),
            Some(NFT_META_IIFNAME) => Some(Value::Name(Direction::In)),
            Some(NFT_META_OIFNAME) => Some(Value::Name(Direction::Out)),
            Some(NFT_META_NFPROTO) => Some(Value::Nfproto),
            Some(NFT_META_PROTOCOL) => Some(Value::Protocol),
            _ => None,
        };
        self.load(Some(register), value);
    }

    fn fib(&mut self, data: Attributes<'_>) {
        let is_type = number(data, NFTA_FIB_RESULT) == Some(NFT_FIB_RESULT_ADDRTYPE)
            && number(data, NFTA_FIB_FLAGS).is_some_and(|flags| flags & NFTA_FIB_F_DADDR != 0);
        let value = is_type.then_some(Value::DestinationType);
        match number(data, NFTA_FIB_DREG) {
            Some(register) => self.load(Some(register), value),
            None => self.does("fib"),
        }
    }

    fn compare(&mut self, data: Attributes<'_>) {
        let negated = match number(data, NFTA_CMP_OP) {
            Some(NFT_CMP_EQ) => false,
            Some(NFT_CMP_NEQ) => true,
            _ => return,
        };
        let held = self.held(number(data, NFTA_CMP_SREG));
        let with = data.nested(NFTA_CMP_DATA).and_then(|data| data.get(NFTA_DATA_VALUE));
        let (Some(held), Some(with)) = (held, with) else { return };
        let step = match held {
            Value::Index(direction) | Value::Name(direction) => {
                which(held, with).map(|which| Step::If { direction, which: vec![which], negated })
            }
            Value::Nfproto => nfproto(with).map(|families| Step::Family(unless(negated, families))),
            Value::Protocol => {
                protocol(with).map(|families| Step::Family(unless(negated, families)))
            }
            Value::DestinationType => {
                (!negated && is_never_forwarded(with)).then_some(Step::Family(Families::default()))
            }
        };
        self.steps.extend(step);
    }

    fn lookup(&mut self, data: Attributes<'_>) {
        let Some(name) = data.text(NFTA_LOOKUP_SET) else { return self.does("lookup") };
        let set = SetId { family: self.family, table: self.table.into(), name: name.into() };
        let destination = number(data, NFTA_LOOKUP_DREG);
        let negated = number(data, NFTA_LOOKUP_FLAGS).unwrap_or(0) & NFT_LOOKUP_F_INV != 0;
        let held = self.held(number(data, NFTA_LOOKUP_SREG));
        let elements = match held {
            Some(Value::Index(direction) | Value::Name(direction)) => {
                (self.sets)(&set).map(|elements| (direction, elements))
            }
            _ => None,
        };
        match (destination, elements) {
            (None, Some((direction, elements))) => {
                let which = elements.0.iter().map(|(which, _)| which.clone()).collect();
                self.steps.push(Step::If { direction, which, negated });
            }
            (None, None) => {}
            (Some(NFT_REG_VERDICT), Some((direction, elements))) => {
                self.decides = true;
                self.steps.push(Step::Dispatch(direction, elements.0.clone()));
            }
            (Some(NFT_REG_VERDICT), None) => self.does("vmap"),
            (Some(register), _) => self.load(Some(register), None),
        }
    }

    fn immediate(&mut self, data: Attributes<'_>) {
        let register = number(data, NFTA_IMMEDIATE_DREG);
        if register != Some(NFT_REG_VERDICT) {
            return self.load(register, None);
        }
        self.decides = true;
        let Some(data) = data.nested(NFTA_IMMEDIATE_DATA) else { return self.does("?") };
        match verdict(self.family, self.table, data) {
            Some(Verdict::Does(effect)) => self.does(&effect),
            Some(Verdict::Goes(chain)) => self.steps.push(Step::Goes(chain)),
            None => {}
        }
    }
}

/// What a verdict comes to; `None`: the packet goes on as if nothing had been.
pub(super) fn verdict(family: u8, table: &str, data: Attributes<'_>) -> Option<Verdict> {
    const NF_ACCEPT: i32 = 1;
    const NF_DROP: i32 = 0;
    const NF_QUEUE: i32 = 3;
    const NFT_CONTINUE: i32 = -1;
    const NFT_BREAK: i32 = -2;
    const NFT_JUMP: i32 = -3;
    const NFT_GOTO: i32 = -4;
    const NFT_RETURN: i32 = -5;
    let does = |effect: &str| Some(Verdict::Does(effect.to_owned()));
    let Some(verdict) = data.nested(NFTA_DATA_VERDICT) else { return does("verdict") };
    let Some(code) = number(verdict, NFTA_VERDICT_CODE) else { return does("verdict") };
    match code.cast_signed() {
        NF_ACCEPT | NFT_CONTINUE | NFT_BREAK | NFT_RETURN => None,
        NF_DROP => does("drop"),
        NFT_JUMP | NFT_GOTO => match verdict.text(NFTA_VERDICT_CHAIN) {
            Some(chain) => Some(Verdict::Goes(chain_id(family, table, chain))),
            None => does("jump"),
        },
        // The number of the queue is in the upper half.
        code if code & 0xffff == NF_QUEUE => does("queue"),
        _ => does("verdict"),
    }
}

/// An interface out of a register's worth of bytes.
fn which(held: Value, bytes: &[u8]) -> Option<Which> {
    match held {
        Value::Index(_) if bytes.len() == 4 => u32_at(bytes, 0).map(Which::Index),
        Value::Name(_) if bytes.len() <= NAME_LEN => Some(Which::Name(bytes.to_vec())),
        _ => None,
    }
}

/// An interface out of the key of a set.
pub(super) fn key(bytes: &[u8]) -> Option<Which> {
    match bytes.len() {
        4 => u32_at(bytes, 0).map(Which::Index),
        NAME_LEN => Some(Which::Name(bytes.to_vec())),
        _ => None,
    }
}

fn nfproto(bytes: &[u8]) -> Option<Families> {
    match bytes {
        [2] => Some(Families::V4),
        [10] => Some(Families::V6),
        [_] => Some(Families::default()),
        _ => None,
    }
}

fn protocol(bytes: &[u8]) -> Option<Families> {
    match bytes {
        [0x08, 0x00] => Some(Families::V4),
        [0x86, 0xdd] => Some(Families::V6),
        [_, _] => Some(Families::default()),
        _ => None,
    }
}

/// What is for this host, or for several, goes up whatever rules there are.
fn is_never_forwarded(kind: &[u8]) -> bool {
    let of_host = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST];
    u32_at(kind, 0).is_some_and(|kind| of_host.map(u32::from).contains(&kind))
}

fn unless(negated: bool, families: Families) -> Families {
    let Families { v4, v6 } = families;
    if negated { Families { v4: !v4, v6: !v6 } } else { families }
}

/// Four bytes are a register, or a quarter of one of the first four (`nft_parse_register`).
fn place(register: u32) -> Option<u32> {
    match register {
        1..=4 => Some((register - 1) * 4),
        8..=23 => Some(register - 8),
        _ => None,
    }
}

/// Numbers of this family are big-endian.
pub(super) fn number(attributes: Attributes<'_>, kind: u16) -> Option<u32> {
    attributes.u32(kind).map(u32::from_be)
}

/// An expression in the words of `nft`.
fn effect(name: &str) -> &str {
    match name {
        "masq" => "masquerade",
        "redir" => "redirect",
        "flow_offload" => "flow add",
        "dynset" => "update of a set",
        "objref" => "named object",
        "" => "?",
        name => name,
    }
}

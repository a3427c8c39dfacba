//! Whatever the kernel sends, it is read without a panic; and what is not understood counts.

use std::slice::from_ref;

use proptest::prelude::*;

use super::*;
use crate::{
    bypass::rules::Step,
    netlink::wire::{Attributes, push_attribute},
};

/// An attribute of these.
fn nest(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind, &parts.concat())
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_attribute(&mut bytes, kind, value);
    bytes
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nest(1, &[attribute(1, &[name.as_bytes(), &[0]].concat()), nest(2, data)])
}

/// `iifname "vx" drop`, the interface in the register of this number.
fn drop_on_vx(register: u32, between: &[Vec<u8>]) -> Vec<u8> {
    let mut name = [0; 16];
    name[..2].copy_from_slice(b"vx");
    let load = expression("meta", &[number(1, register), number(2, 6)]);
    let value = nest(3, &[attribute(1, &name)]);
    let compare = expression("cmp", &[number(1, register), number(2, 0), value]);
    let verdict = nest(2, &[nest(2, &[number(1, 0)])]);
    let drop = expression("immediate", &[number(1, 0), verdict]);
    [vec![load], between.to_vec(), vec![compare, drop]].concat().concat()
}

fn steps(expressions: &[u8]) -> Vec<Step> {
    let machine = Machine::new(1, "t", |_: &SetId| None);
    machine.run(Attributes::after(0, expressions))
}

/// Whether the packets of all interfaces are meant.
fn counts_for_all(expressions: &[u8]) -> bool {
    let steps = steps(expressions);
    let is_condition = |step: &Step| matches!(step, Step::If { .. } | Step::Family(_));
    let at = steps.iter().position(|step| matches!(step, Step::Does(_)));
    at.is_some_and(|at| !steps[..at].iter().any(is_condition))
}

fn messages() -> [Vec<u8>; 4] {
    let text = |kind, text: &str| attribute(kind, &[text.as_bytes(), &[0]].concat());
    let header = [vec![2, 0, 0, 0]];
    let devices = nest(4, &[text(1, "va"), text(2, "v")]);
    let hook = nest(4, &[number(1, 2), number(2, 0), text(3, "va"), devices]);
    let chain = [text(1, "t"), text(3, "f"), hook, number(5, 0)];
    let expressions = attribute(4, &drop_on_vx(1, &[]));
    let rule = [text(1, "t"), text(2, "f"), attribute(3, &7_u64.to_be_bytes()), expressions];
    let set = [text(1, "t"), text(2, "s"), number(3, 8), number(5, 16)];
    let verdict = nest(2, &[nest(2, &[number(1, (-3_i32).cast_unsigned()), text(2, "more")])]);
    let element = nest(1, &[nest(1, &[attribute(1, b"va\0\0\0\0\0\0\0\0\0\0\0\0\0\0")]), verdict]);
    let elements = [text(1, "t"), text(2, "s"), nest(3, &[element])];
    [&chain, &rule, &set, &elements[..]].map(|parts| [&header, parts].concat().concat())
}

fn decode_in_every_way(body: &[u8]) {
    let set = SetId { family: 1, table: "t".into(), name: "s".into() };
    let _ = (chain(body), plain_set(body), elements(&set, body), generation(body));
    if let Some(rule) = rule(body) {
        Machine::new(rule.family, rule.table, |_: &SetId| None).run(rule.expressions);
    }
}

#[test]
fn messages_as_they_are() {
    let [a, b, c, d] = messages();
    let (id, entry) = chain(&a).unwrap();
    assert_eq!((id.to_string(), entry.unwrap().policy.is_some()), ("ip t f".into(), true));
    let rule = rule(&b).unwrap();
    assert_eq!((rule.chain.to_string(), rule.table), ("ip t f".into(), "t"));
    assert!(rule.named.remedy.contains("`nft delete rule ip t f handle 7`"));
    let set = plain_set(&c).unwrap();
    assert_eq!((set.family, set.name.as_str()), (2, "s"));
    let elements = elements(&set, &d).unwrap();
    assert_eq!(elements.0.len(), 1);
    assert!(elements.0[0].1.is_some());
}

#[test]
fn a_value_that_is_overwritten_is_forgotten() {
    assert!(!counts_for_all(&drop_on_vx(1, &[])));
    for (register, first_part) in [(1, 8), (2, 12), (8, 8), (12, 12)] {
        // A load to the same place, and a long one to a place before it.
        for other in [first_part, 8, 1] {
            let payload = expression("payload", &[number(1, other)]);
            let between = [payload];
            assert!(counts_for_all(&drop_on_vx(register, &between)), "{register}, {other}");
        }
        // Behind it there is room for what is loaded.
        let payload = expression("payload", &[number(1, first_part + 4)]);
        assert!(!counts_for_all(&drop_on_vx(register, &[payload])));
    }
}

#[test]
fn what_is_not_known_counts_and_may_have_written_anywhere() {
    for name in ["of a newer kernel", "inner", ""] {
        let unknown = expression(name, &[number(1, 9)]);
        assert!(counts_for_all(&unknown));
        assert!(counts_for_all(&drop_on_vx(1, from_ref(&unknown))));
        assert_eq!(steps(&drop_on_vx(1, &[unknown])).len(), 2, "and no condition holds behind it");
    }
    for (name, known) in [("comment", true), ("conntrack", false), ("of a newer iptables", false)] {
        let matching = expression("match", &[attribute(1, name.as_bytes())]);
        assert_eq!(steps(&matching).is_empty(), known, "{name}");
    }
    let target = expression("target", &[attribute(1, b"MASQUERADE\0")]);
    assert_eq!(steps(&target), [Step::Does("MASQUERADE".into())]);
    assert!(counts_for_all(&attribute(1, b"cut off")));
}

#[test]
fn verdicts() {
    let to = attribute(2, b"more\0");
    let does = |effect: &str| vec![Step::Does(effect.into())];
    let goes = vec![Step::Goes(tables::chain_id(1, "t", "more"))];
    for (code, expected) in [
        (1, vec![]),
        (-1, vec![]),
        (-2, vec![]),
        (-5, vec![]),
        (0, does("drop")),
        (3, does("queue")),
        (3 | 7 << 16, does("queue")),
        (5, does("verdict")),
        (-3, goes.clone()),
        (-4, goes),
    ] {
        let verdict = nest(2, &[number(1, i32::cast_unsigned(code)), to.clone()]);
        let immediate = expression("immediate", &[number(1, 0), nest(2, &[verdict])]);
        assert_eq!(steps(&immediate), expected, "{code}");
    }
}

#[test]
fn a_rule_that_nobody_understands_is_an_error() {
    let [chain, rule, ..] = messages();
    let good = ruleset(from_ref(&chain), from_ref(&rule), &BTreeMap::new()).unwrap();
    assert_eq!(good.chains.len(), 1);
    ruleset(from_ref(&chain), &[rule[..12].to_vec()], &BTreeMap::new()).unwrap_err();
    ruleset(&[chain[..8].to_vec()], &[rule], &BTreeMap::new()).unwrap_err();
}

#[test]
fn a_message_cut_off_anywhere_is_read_without_a_panic() {
    for whole in messages() {
        for length in 0..whole.len() {
            decode_in_every_way(&whole[..length]);
        }
    }
}

proptest! {
    #[test]
    fn damaged_messages_are_read_without_a_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
    ) {
        let mut body = which.get(&messages()).clone();
        for (at, value) in edits {
            *at.get_mut(&mut body) = value;
        }
        body.truncate(length.index(body.len() + 1));
        decode_in_every_way(&body);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..256)) {
        decode_in_every_way(&body);
        steps(&body);
    }
}

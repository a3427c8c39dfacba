//! Where a walk over rules ends, and what findings do to a running forwarder.

use super::{
    rules::{
        Chain, ChainId, DEPTH_MAX, Entry, Named, Rule, Ruleset, Step, Verdict, WALKS_MAX, Which,
        findings,
    },
    stops::{News, Stops},
    *,
};
use crate::bypass::rules::Direction;

fn ports(names: &[&str]) -> Vec<Port> {
    (101..).zip(names).map(|(ifindex, name)| Port { ifindex, name: (*name).to_owned() }).collect()
}

fn id(name: usize) -> ChainId {
    ChainId { family: "ip".into(), table: "t".into(), name: name.to_string() }
}

fn rule(name: usize, steps: Vec<Step>) -> Rule {
    let what = format!("{name} ({{}})");
    Rule { named: Named { what, remedy: "-".to_owned() }, steps }
}

fn entry() -> Entry {
    Entry { families: Families::V4, bound: None, policy: None }
}

/// Each chain has these rules; packets enter the first.
fn ruleset(chains: impl IntoIterator<Item = Vec<Rule>>) -> Ruleset {
    let chain = |(at, rules)| (id(at), Chain { entry: (at == 0).then(entry), rules });
    Ruleset { chains: chains.into_iter().enumerate().map(chain).collect() }
}

fn found(ruleset: &Ruleset) -> Vec<String> {
    findings(ruleset, &ports(&["va", "vb"])).into_iter().map(|finding| finding.what).collect()
}

fn drop() -> Step {
    Step::Does("drop".to_owned())
}

#[test]
fn chains_that_lead_to_each_other_end_and_too_deep_ones_count() {
    let round = ruleset([
        vec![rule(0, vec![Step::Goes(id(1))])],
        vec![rule(1, vec![Step::Goes(id(0))]), rule(2, vec![drop()])],
    ]);
    assert_eq!(found(&round), ["2 (drop)"]);

    let line = |len: usize| {
        let next = move |at: usize| {
            let step = if at + 1 == len { drop() } else { Step::Goes(id(at + 1)) };
            vec![rule(at, vec![step])]
        };
        found(&ruleset((0..len).map(next)))
    };
    assert_eq!(line(DEPTH_MAX + 1), [format!("{DEPTH_MAX} (drop)")]);
    assert_eq!(line(DEPTH_MAX + 2), [format!("{DEPTH_MAX} (jump)")]);
    let nowhere = ruleset([vec![rule(0, vec![Step::Goes(id(7))])]]);
    assert_eq!(found(&nowhere), ["0 (jump)"]);
}

#[test]
fn more_chains_than_are_walked_count() {
    let walked = |count: usize| {
        let first = (1..=count).map(|at| rule(at, vec![Step::Goes(id(at))])).collect();
        let others = (0..count).map(|_| vec![]);
        found(&ruleset([first].into_iter().chain(others)))
    };
    assert_eq!(walked(WALKS_MAX - 1), [""; 0]);
    assert_eq!(walked(WALKS_MAX + 1).len(), 2);
}

#[test]
fn a_name_is_compared_as_the_kernel_does_it() {
    let counts = |which: Which, name: &str| {
        let step = Step::If { direction: Direction::In, which: vec![which], negated: false };
        let ruleset = ruleset([vec![rule(0, vec![step, drop()])]]);
        !findings(&ruleset, &ports(&[name, "other"])).is_empty()
    };
    let longest = "fifteen-bytes-x";
    for (which, name, expected) in [
        (Which::exactly("eth1"), "eth1", true),
        (Which::exactly("eth1"), "eth11", false),
        (Which::exactly(longest), longest, true),
        (Which::Name(b"eth".to_vec()), "eth11", true),
        (Which::Name(b"eth1\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()), "eth1", true),
        (Which::Name(b"longer than any name can be".to_vec()), "eth1", false),
        (Which::Name(vec![]), "eth1", true),
        (Which::Index(101), "eth1", true),
        (Which::Index(103), "eth1", false),
    ] {
        assert_eq!(counts(which.clone(), name), expected, "{which:?} {name}");
    }
}

#[test]
fn one_interface_has_nothing_to_be_bypassed() {
    let all = ruleset([vec![rule(0, vec![drop()])]]);
    assert_eq!(findings(&all, &ports(&["va"])), []);
    assert_eq!(findings(&all, &[]), []);
    let to = |name: &str| {
        let verdict = Some(Verdict::Does("drop".into()));
        let verdicts = vec![(Which::exactly(name), verdict)];
        found(&ruleset([vec![rule(0, vec![Step::Dispatch(Direction::Out, verdicts)])]]))
    };
    assert_eq!((to("vb").len(), to("vx").len()), (1, 0));
}

fn finding(kind: Kind, families: Families, what: &str) -> Finding {
    Finding { kind, families, what: what.to_owned(), remedy: "remove it".to_owned() }
}

#[test]
fn a_family_stands_still_as_long_as_something_stops_it() {
    let allowed = finding(Kind::Tc, Families::BOTH, "a shaper");
    let mut stops = Stops::new([Kind::Tc].into(), vec![allowed.clone()]);
    let stopped = |stops: &Stops| Family::ALL.map(|family| stops.stops(family));
    assert_eq!(stopped(&stops), [false, false]);

    let masquerade = finding(Kind::Netfilter, Families::V4, "a masquerade");
    let policy = finding(Kind::Xfrm, Families::BOTH, "a policy");
    let say = |what: &str, families: &str, kind: &str| {
        News::Stopped(format!(
            "no {families} is forwarded in XDP, which would bypass {what}: remove it, or start \
             again with --bypass={kind}"
        ))
    };
    let news = stops.update(vec![allowed.clone(), masquerade.clone()]);
    assert_eq!(news, [say("a masquerade", "IPv4", "netfilter")]);
    assert_eq!(stopped(&stops), [true, false]);
    let news = stops.update(vec![masquerade.clone(), policy.clone()]);
    assert_eq!(news, [say("a policy", "IPv4 or IPv6", "xfrm")]);
    assert_eq!(stopped(&stops), [true, true]);
    let news = stops.update(vec![allowed.clone(), masquerade]);
    let bypasses = "XDP bypasses a shaper for IPv4 and IPv6, as --bypass=tc allows";
    let again = |family: &str| News::GoesOn(format!("{family} is forwarded in XDP again"));
    assert_eq!(news, [News::Bypassed(bypasses.to_owned()), again("IPv6")]);
    assert_eq!(stops.update(vec![allowed.clone()]), [again("IPv4")]);
    assert_eq!(stops.update(vec![allowed]), []);
    assert_eq!((stopped(&stops), stops.notes()), ([false, false], vec![bypasses.to_owned()]));
}

#[test]
fn a_list_of_notes_ends() {
    let many: Vec<_> = (0..LISTED_MAX + 3)
        .map(|number| finding(Kind::Netfilter, Families::V4, &format!("rule {number}")))
        .collect();
    let mut stops = Stops::default();
    assert_eq!(stops.update(many).len(), LISTED_MAX);
    let notes = stops.notes();
    assert_eq!(notes.len(), LISTED_MAX + 1);
    assert_eq!(notes[LISTED_MAX], "and 3 more of this kind");
}

use crate::{
    bypass::{Families, Port, rules::findings},
    netlink::{namespace::Namespace, socket::Socket},
};

use super::*;

mod damaged;

/// Between interfaces of these names, with the indexes 101, 102, …
fn ports(names: &[&str]) -> Vec<Port> {
    (101..).zip(names).map(|(ifindex, name)| Port { ifindex, name: (*name).to_owned() }).collect()
}

/// A namespace with some interfaces and these rules. `None`: it cannot be had here.
fn namespace(rules: &str) -> Option<Namespace> {
    let namespace = Namespace::new()?;
    if !Namespace::has("nft") {
        return None;
    }
    namespace.sh("ip link add va index 101 type veth peer name vb index 102");
    namespace.nft(rules);
    Some(namespace)
}

/// What is bypassed of these rules between `va` and `vb`: families, and the rule.
fn bypassed(rules: &str) -> Option<Vec<(Families, String)>> {
    let namespace = namespace(rules)?;
    let ruleset = namespace.run(|| async {
        let mut socket = Socket::open(netlink_sys::protocols::NETLINK_NETFILTER).unwrap();
        read(&mut socket).await.unwrap()
    });
    let found = findings(&ruleset, &ports(&["va", "vb"]));
    Some(found.into_iter().map(|finding| (finding.families, finding.what)).collect())
}

/// Rules of a chain at the hook `forward`, and what of each is bypassed: "drop", "ct, drop", or
/// nothing.
fn check(rows: &[(&str, &str)]) {
    for (rule, expected) in rows {
        let tables = format!(
            "
            table inet t {{
                map plain {{ type ifname : verdict; elements = {{ \"va\" : drop, \"vx\" : jump more }}; }}
                map others {{ type ifname : verdict; elements = {{ \"vx\" : drop, \"vy\" : jump more }}; }}
                map to_more {{ type ifname : verdict; elements = {{ \"va\" : accept, \"vb\" : goto more }}; }}
                set named {{ type ifname; elements = {{ \"vx\", \"vb\" }}; }}
                set far {{ type ifname; elements = {{ \"vx\", \"vy\" }}; }}
                set empty {{ type ifname; }}
                set marks {{ type mark; elements = {{ 1, 101 }}; }}
                set moving {{ type ifname; flags dynamic; size 8; timeout 1m; }}
                chain more {{ meta mark set 1; }}
                chain nothing {{ tcp dport 22 accept; }}
                chain near {{ oifname \"va\" jump more; }}
                chain f {{
                    type filter hook forward priority 0; policy accept;
                    {rule}
                }}
            }}"
        );
        let Some(found) = bypassed(&tables) else { return };
        let found: Vec<_> = found
            .iter()
            .map(|(families, what)| {
                let effects = what.split(['(', ')']).nth(1).unwrap_or(what);
                match *families {
                    Families::BOTH => effects.to_owned(),
                    Families::V4 => format!("4: {effects}"),
                    _ => format!("6: {effects}"),
                }
            })
            .collect();
        assert_eq!(found.join("; "), *expected, "{rule}");
    }
}

#[test]
fn what_a_rule_does_counts_and_what_it_only_looks_at_does_not() {
    check(&[
        ("accept", ""),
        ("tcp dport { 22, 80 } accept", ""),
        ("ip saddr 198.18.0.0/16 return", ""),
        ("meta mark 7 accept", ""),
        ("fib daddr type local accept", ""),
        ("ip ttl 3-9 accept", ""),
        ("drop", "drop"),
        ("ip saddr 198.18.0.0/16 drop", "4: drop"),
        ("ip6 saddr 2001:db8::/32 drop", "6: drop"),
        ("meta nfproto ipv4 drop", "4: drop"),
        ("meta nfproto != ipv4 drop", "6: drop"),
        ("meta protocol ip6 drop", "6: drop"),
        ("meta protocol arp drop", ""),
        ("reject", "reject"),
        ("counter accept", ""),
        ("ip saddr 198.18.0.1 counter", "4: counter"),
        ("counter jump nothing", ""),
        ("counter drop", "drop"),
        ("fib daddr type local drop", ""),
        ("fib daddr . iif type local drop", ""),
        ("fib daddr type != local drop", "drop"),
        ("fib daddr type unicast drop", "drop"),
        ("fib saddr type local drop", "drop"),
        ("fib saddr . iif oif 0 drop", "drop"),
        ("log prefix \"x\"", "log"),
        ("limit rate 3/second accept", "limit"),
        ("meta mark set 3", "meta set"),
        ("ip ttl set 7", "4: payload set"),
        ("tcp option maxseg size set 1400", "exthdr set"),
        ("ct state established accept", "ct"),
        ("ct state vmap { invalid : drop }", "ct, vmap"),
        ("ip daddr vmap { 198.18.0.1 : drop }", "4: vmap"),
        ("notrack", "notrack"),
        ("jump more", "meta set"),
        ("jump nothing", ""),
        ("add @moving { iifname }", "update of a set"),
    ]);
}

#[test]
fn rules_for_other_interfaces_do_not_count() {
    check(&[
        ("iifname \"va\" drop", "drop"),
        ("iifname \"vx\" drop", ""),
        ("oifname \"vb\" drop", "drop"),
        ("oifname \"v\" drop", ""),
        ("iifname \"v*\" drop", "drop"),
        ("iifname \"w*\" drop", ""),
        ("iifname != \"va\" drop", "drop"),
        ("iifname != \"v*\" drop", ""),
        ("iif va drop", "drop"),
        ("iif lo drop", ""),
        ("oif != lo drop", "drop"),
        // Nothing is forwarded to where it came from.
        ("iifname \"va\" oifname \"va\" drop", ""),
        ("iif va oifname \"vb\" drop", "drop"),
        ("iifname { \"va\", \"vx\" } drop", "drop"),
        ("iifname { \"vx\", \"vy\" } drop", ""),
        ("iifname != { \"va\", \"vb\" } drop", ""),
        ("iif { lo, va } drop", "drop"),
        ("iif { lo } drop", ""),
        ("iifname @named drop", "drop"),
        ("iifname @far drop", ""),
        ("iifname @empty drop", ""),
        ("iifname @moving drop", "drop"),
        ("iifname { \"v*\", \"w\" } drop", "drop"),
        ("meta mark @marks drop", "drop"),
        ("iifname . oifname { \"vx\" . \"vy\" } drop", "drop"),
        ("iifname vmap @plain", "drop"),
        ("iifname vmap @others", ""),
        ("oifname vmap @to_more", "meta set"),
        ("iifname \"vb\" oifname vmap @to_more", ""),
        ("iifname vmap { \"va\" : drop, \"vx\" : accept }", "drop"),
        ("iifname \"vx\" jump more", ""),
        ("iifname \"va\" jump near", ""),
        ("iifname \"vb\" jump near", "meta set"),
        ("meta iifgroup 7 drop", "drop"),
        // Another value comes into the register.
        ("iifname \"va\" meta mark 101 drop", "drop"),
        ("iif and 0x3 == 2 drop", "drop"),
    ]);
}

#[test]
fn hooks_on_the_way_of_a_forwarded_packet_count() {
    let chain = |family: &str, kind: &str, hook: &str| {
        format!("table {family} t {{ chain c {{ type {kind} hook {hook} priority 0; drop; }}; }}")
    };
    let both = |found: &[(Families, String)]| found.iter().map(|it| it.0).collect::<Vec<_>>();
    for (family, kind, hook, expected) in [
        ("ip", "filter", "prerouting", vec![Families::V4]),
        ("ip", "nat", "postrouting", vec![Families::V4]),
        ("ip6", "filter", "forward", vec![Families::V6]),
        ("inet", "filter", "postrouting", vec![Families::BOTH]),
        ("inet", "filter", "input", vec![]),
        ("ip", "filter", "output", vec![]),
        ("ip", "route", "output", vec![]),
        ("ip6", "nat", "input", vec![]),
        ("inet", "filter", "ingress device va", vec![Families::BOTH]),
        ("inet", "filter", "ingress device lo", vec![]),
        ("netdev", "filter", "ingress device va", vec![Families::BOTH]),
        ("netdev", "filter", "ingress device lo", vec![]),
        ("netdev", "filter", "egress devices = { lo, vb }", vec![Families::BOTH]),
        ("netdev", "filter", "egress device lo", vec![]),
        ("bridge", "filter", "forward", vec![]),
        ("arp", "filter", "input", vec![]),
    ] {
        let Some(found) = bypassed(&chain(family, kind, hook)) else { return };
        assert_eq!(both(&found), expected, "{family} {kind} {hook}: {found:?}");
    }
}

#[test]
fn a_policy_counts_and_an_empty_chain_does_not() {
    let Some(found) = bypassed(
        "table ip t {
            chain f { type filter hook forward priority 0; policy drop; }
            chain p { type filter hook prerouting priority 0; policy accept; }
            chain i { type filter hook input priority 0; policy drop; }
            chain unused { drop; }
        }
        table ip6 empty { }",
    ) else {
        return;
    };
    assert_eq!(found, [(Families::V4, "policy drop of nftables chain ip t f".to_owned())]);
}

#[test]
fn each_rule_is_named_once_with_what_removes_it() {
    let Some(namespace) = namespace(
        "table ip nat {
            chain deep { oifname \"vb\" counter masquerade; }
            chain a { type nat hook postrouting priority 1; jump deep; ip saddr 198.18.0.1 jump deep; }
            chain b { type nat hook postrouting priority 2; jump deep; }
        }",
    ) else {
        return;
    };
    let read = || {
        let ruleset = namespace.run(|| async {
            let mut socket = Socket::open(netlink_sys::protocols::NETLINK_NETFILTER).unwrap();
            read(&mut socket).await.unwrap()
        });
        findings(&ruleset, &ports(&["va", "vb"]))
    };
    let found = read();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].families, Families::V4);
    let what = &found[0].what;
    assert!(what.ends_with(" (masquerade) of nftables chain ip nat deep"), "{what}");
    namespace.sh(found[0].remedy.split('`').nth(1).unwrap());
    assert_eq!(read(), []);
}

#[test]
fn the_generation_moves_with_every_change() {
    let Some(namespace) = namespace("table ip t { set s { type ifname; }; }") else { return };
    let generation = || {
        namespace.run(|| async {
            let mut socket = Socket::open(netlink_sys::protocols::NETLINK_NETFILTER).unwrap();
            read_generation(&mut socket).await.unwrap().unwrap()
        })
    };
    let before = generation();
    assert_eq!(generation(), before);
    namespace.nft("add element ip t s { \"va\" }");
    assert_ne!(generation(), before);
}

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;

mod sets;

fn read(line: &str, family: Option<Family>) -> Result<Route, GrammarError> {
    route(&line.split_whitespace().collect::<Vec<_>>(), family)
}

fn select(line: &str, family: Option<Family>) -> Result<Selector, GrammarError> {
    selector(&line.split_whitespace().collect::<Vec<_>>(), family)
}

#[test]
fn routes_are_read() {
    let (inet, inet6) = (Some(Family::Inet), Some(Family::Inet6));
    for (line, family, prefix, via, dev) in [
        ("198.18.2.0/24 via 198.18.1.2 dev eth1", None, "198.18.2.0/24", "198.18.1.2", "eth1"),
        ("198.18.2.0/24 via 198.18.1.2", None, "198.18.2.0/24", "198.18.1.2", ""),
        ("198.18.2.0/24 via inet 198.18.1.2", None, "198.18.2.0/24", "198.18.1.2", ""),
        ("198.18.2.0/24 dev eth1", None, "198.18.2.0/24", "", "eth1"),
        ("to 198.18.2.0/24 dev eth1", None, "198.18.2.0/24", "", "eth1"),
        ("dev eth1 via 198.18.1.2 198.18.2.0/24", None, "198.18.2.0/24", "198.18.1.2", "eth1"),
        ("198.18.2.0/24 dev eth1 proto xdp", None, "198.18.2.0/24", "", "eth1"),
        ("198.18.2.7 dev eth1", None, "198.18.2.7/32", "", "eth1"),
        ("2001:db8:2::/48 via 2001:db8::1", None, "2001:db8:2::/48", "2001:db8::1", ""),
        ("2001:db8:2::/48 via fe80::1 dev eth1", None, "2001:db8:2::/48", "fe80::1", "eth1"),
        ("198.18.2.0/24 via inet6 2001:db8::1", None, "198.18.2.0/24", "2001:db8::1", ""),
        ("198.18.2.0/24 via inet6 fe80::1 dev eth1", inet, "198.18.2.0/24", "fe80::1", "eth1"),
        ("default via 198.18.1.2", None, "0.0.0.0/0", "198.18.1.2", ""),
        ("default via 2001:db8::1", None, "::/0", "2001:db8::1", ""),
        ("default via inet6 2001:db8::1", None, "::/0", "2001:db8::1", ""),
        ("default via inet6 2001:db8::1", inet, "0.0.0.0/0", "2001:db8::1", ""),
        ("default dev eth1", None, "0.0.0.0/0", "", "eth1"),
        ("default dev eth1", inet6, "::/0", "", "eth1"),
        ("0/0 dev eth1", None, "0.0.0.0/0", "", "eth1"),
        ("2001:db8::/32 dev eth1", inet6, "2001:db8::/32", "", "eth1"),
    ] {
        let route = read(line, family).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(route.prefix, prefix.parse().unwrap(), "{line}");
        let [next_hop] = &route.next_hops[..] else { panic!("{route:?}") };
        assert_eq!(next_hop.via, via.parse().ok(), "{line}");
        assert_eq!(next_hop.dev.as_deref().unwrap_or_default(), dev, "{line}");
        assert_eq!((next_hop.weight, route.cpus), (1, None), "{line}");
    }
}

#[test]
fn words_that_are_wrong_are_named() {
    for (line, message) in [
        (
            "",
            "a prefix is missing: write PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]",
        ),
        (
            "dev eth1",
            "a prefix is missing: write PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]",
        ),
        (
            "198.18.2.7/24 dev eth1",
            "'198.18.2.7/24' has host bits set: the prefix is 198.18.2.0/24",
        ),
        (
            "198.18.2.0/33 dev eth1",
            "'198.18.2.0/33' is not a prefix: write ADDRESS/LENGTH, for example 198.18.2.0/24 or 2001:db8::/32",
        ),
        (
            "198.18.2.0/24",
            "'198.18.2.0/24' leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both",
        ),
        ("198.18.2.0/24 via", "'via' needs an address after it"),
        ("198.18.2.0/24 via inet6", "'inet6' needs an address after it"),
        ("198.18.2.0/24 dev", "'dev' needs the name of an interface after it"),
        (
            "198.18.2.0/24 via x",
            "'x' is not an address: write for example 198.18.1.2 or 2001:db8::1",
        ),
        ("198.18.2.0/24 via 198.18.1.2 via 198.18.1.3", "'via' is given twice"),
        ("198.18.2.0/24 dev eth1 dev eth2", "'dev' is given twice"),
        ("198.18.2.0/24 to 198.18.3.0/24 dev eth1", "'198.18.3.0/24' is given twice"),
        (
            "198.18.2.0/24 198.18.3.0/24 dev eth1",
            "'198.18.3.0/24' is not understood: write PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]",
        ),
        (
            "198.18.2.0/24 dev interface-sixteen",
            "'interface-sixteen' is not a name of an interface: 1 to 15 bytes, without '/', ':' and spaces",
        ),
        (
            "198.18.2.0/24 dev eth1 metric 100",
            "'metric' is not supported: a prefix has one route here",
        ),
        ("198.18.2.0/24 dev eth1 table 100", "'table' is not supported: there is one table here"),
        (
            "198.18.2.0/24 dev eth1 proto static",
            "'proto' is not supported: routes are made here under the name of forwarder",
        ),
        (
            "198.18.2.0/24 via 198.18.1.2 dev eth1 onlink",
            "'onlink' is not supported: the next hop must be reached through an address of its interface",
        ),
        (
            "blackhole 198.18.2.0/24",
            "'blackhole' is not supported: routes here forward; leave the other types to Linux (`ip route`)",
        ),
        (
            "198.18.2.0/24 dev eth1 foo",
            "'foo' is not understood: write PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]",
        ),
        (
            "root 198.18.2.0/24 dev eth1",
            "'root' is not understood: write PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]",
        ),
    ] {
        assert_eq!(read(line, None).unwrap_err().to_string(), message, "{line}");
    }
}

#[test]
fn addresses_that_do_not_fit_are_named() {
    let (inet, inet6) = (Some(Family::Inet), Some(Family::Inet6));
    for (line, family, message) in [
        (
            "198.18.2.0/24 via 2001:db8::1",
            None,
            "'2001:db8::1' is an IPv6 gateway for the IPv4 prefix '198.18.2.0/24': if that is meant (RFC 8950), write `via inet6 2001:db8::1`",
        ),
        (
            "2001:db8:2::/48 via 198.18.1.2",
            None,
            "the IPv6 prefix '2001:db8:2::/48' cannot go over the IPv4 gateway 198.18.1.2",
        ),
        (
            "2001:db8:2::/48 via inet 198.18.1.2",
            None,
            "the IPv6 prefix '2001:db8:2::/48' cannot go over the IPv4 gateway 198.18.1.2",
        ),
        (
            "198.18.2.0/24 via inet6 198.18.1.2",
            None,
            "'198.18.1.2' is not IPv6, which `inet6` asks for",
        ),
        (
            "2001:db8:2::/48 via fe80::1",
            None,
            "the gateway fe80::1 is link-local, and means a different host on each link: add `dev INTERFACE`",
        ),
        (
            "198.18.2.0/24 via 0.0.0.0",
            None,
            "'0.0.0.0' cannot be a gateway: it is not the address of one host",
        ),
        (
            "198.18.2.0/24 via 255.255.255.255",
            None,
            "'255.255.255.255' cannot be a gateway: it is not the address of one host",
        ),
        (
            "2001:db8::/32 via ff02::1 dev eth1",
            None,
            "'ff02::1' cannot be a gateway: it is not the address of one host",
        ),
        ("198.18.2.0/24 dev eth1", inet6, "'198.18.2.0/24' is not IPv6, which -6 asks for"),
        ("2001:db8::/32 dev eth1", inet, "'2001:db8::/32' is not IPv4, which -4 asks for"),
    ] {
        assert_eq!(read(line, family).unwrap_err().to_string(), message, "{line}");
    }
}

#[test]
fn selectors_are_read() {
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let empty = Selector::default();
    for (line, family, selector) in [
        ("", None, empty.clone()),
        ("all", None, empty.clone()),
        ("", Some(Family::Inet), Selector { ipv4: Some(true), ..empty.clone() }),
        ("", Some(Family::Inet6), Selector { ipv4: Some(false), ..empty.clone() }),
        (
            "198.18.2.0/24",
            None,
            Selector { prefix: Some(PrefixMatch::Exact(prefix("198.18.2.0/24"))), ..empty.clone() },
        ),
        (
            "exact 198.18.2.0/24 dev eth1",
            None,
            Selector {
                prefix: Some(PrefixMatch::Exact(prefix("198.18.2.0/24"))),
                dev: Some("eth1".to_owned()),
                ..empty.clone()
            },
        ),
        (
            "root 0/0",
            None,
            Selector { prefix: Some(PrefixMatch::Root(prefix("0.0.0.0/0"))), ..empty.clone() },
        ),
        (
            "root default",
            Some(Family::Inet6),
            Selector { prefix: Some(PrefixMatch::Root(prefix("::/0"))), ..empty.clone() },
        ),
        (
            "match 2001:db8::1",
            None,
            Selector { prefix: Some(PrefixMatch::Match(prefix("2001:db8::1"))), ..empty.clone() },
        ),
        (
            "default via 2001:db8::1",
            None,
            Selector {
                prefix: Some(PrefixMatch::Exact(prefix("::/0"))),
                via: "2001:db8::1".parse().ok(),
                ..empty.clone()
            },
        ),
        ("via 198.18.1.2", None, Selector { via: "198.18.1.2".parse().ok(), ..empty.clone() }),
        ("dev eth1 proto xdp", None, Selector { dev: Some("eth1".to_owned()), ..empty }),
    ] {
        assert_eq!(select(line, family), Ok(selector), "{line}");
    }
}

#[test]
fn what_is_wrong_with_a_selector_is_named() {
    for (line, message) in [
        ("root", "'root' needs a prefix after it"),
        ("198.18.2.1/24", "'198.18.2.1/24' has host bits set: the prefix is 198.18.2.0/24"),
        ("root 0/0 match 198.18.2.0/24", "'198.18.2.0/24' is given twice"),
        ("table main", "'table' is not supported: there is one table here"),
        ("cpu 1", "'cpu' is not supported: routes are shown and flushed for all CPUs together"),
        (
            "nexthop via 198.18.1.2",
            "'nexthop' is not supported: name one next hop with `via` and `dev`, or the prefix alone",
        ),
        (
            "via 198.18.1.2 weight 2",
            "'weight' is not supported: which next hop is told by `via` and `dev` alone",
        ),
        (
            "cache",
            "'cache' is not understood: write [root|match|exact] PREFIX [via ADDRESS] [dev INTERFACE]",
        ),
    ] {
        assert_eq!(select(line, None).unwrap_err().to_string(), message, "{line}");
    }
}

#[test]
fn one_route_is_named_exactly() {
    for (words, message) in [
        (
            &["dev", "eth1"][..],
            "a prefix is missing: write PREFIX [cpu LIST] [via ADDRESS] [dev INTERFACE]",
        ),
        (
            &["root", "0/0"],
            "'root' is not supported: this command takes one route away; `route flush` takes several",
        ),
        (
            &["match", "0/0"],
            "'match' is not supported: this command takes one route away; `route flush` takes several",
        ),
    ] {
        assert_eq!(exact(words, None).unwrap_err().to_string(), message);
    }
    assert!(exact(&["198.18.2.0/24", "via", "198.18.1.2"], None).is_ok());
    let of_cpus = exact(&["198.18.2.0/24", "cpu", "0-1"], None).unwrap();
    assert_eq!(of_cpus.cpus, Some(vec![0, 1]));
}

#[test]
fn an_address_is_of_the_family_that_was_asked_for() {
    assert!(address("198.18.2.7", Some(Family::Inet)).is_ok());
    assert_eq!(
        address("198.18.2.7", Some(Family::Inet6)).unwrap_err().to_string(),
        "'198.18.2.7' is not IPv6, which -6 asks for"
    );
    assert_eq!(
        address("198.18.2.0/24", None).unwrap_err().to_string(),
        "'198.18.2.0/24' is not an address: write for example 198.18.1.2 or 2001:db8::1"
    );
}

/// A route that the grammar accepts.
pub(crate) fn any_route() -> impl Strategy<Value = Route> {
    let inet = || {
        any::<[u8; 4]>().prop_map(|bytes| IpAddr::from(Ipv4Addr::from(bytes))).prop_filter(
            "a gateway is one host",
            |address| {
                !address.is_unspecified()
                    && !address.is_multicast()
                    && !address.is_loopback()
                    && *address != IpAddr::from([255; 4])
            },
        )
    };
    let inet6 = || {
        any::<[u8; 16]>().prop_map(|bytes| IpAddr::from(Ipv6Addr::from(bytes))).prop_filter(
            "a gateway is one host",
            |address| {
                !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
            },
        )
    };
    let dev = "[a-z][a-z0-9.@_-]{0,14}";
    // Short prefixes, the default route among them, as often as long ones.
    let ipv4 = (inet(), prop_oneof![Just(0u8), 0..=32u8], prop_oneof![inet(), inet6()]);
    let ipv6 = (inet6(), prop_oneof![Just(0u8), 0..=128u8], inet6());
    let prefix_and_via = prop_oneof![
        ipv4.prop_map(|(address, length, via)| (address, length, via)),
        ipv6.prop_map(|(address, length, via)| (address, length, via)),
    ];
    let weights = prop::collection::vec(prop_oneof![Just(1u16), 1..=WEIGHT_MAX], 1..4);
    let cpus = prop::option::weighted(0.3, prop::collection::btree_set(0..4096u32, 1..5));
    (prefix_and_via, dev, 0..3u8, weights, cpus).prop_map(
        |((address, length, via), dev, which, weights, cpus)| {
            let net = IpNet::new(address, length).unwrap().trunc();
            let link_local = matches!(via, IpAddr::V6(v6) if v6.is_unicast_link_local());
            // Several differ by their interface.
            let has_dev = which != 1 || link_local || weights.len() > 1;
            let next_hops = (0..).zip(weights).map(|(number, weight)| NextHop {
                via: (which != 0).then_some(via),
                dev: has_dev.then(|| format!("{}{number}", &dev[..dev.len().min(14)])),
                weight,
            });
            Route {
                prefix: Prefix::new(net).unwrap(),
                next_hops: next_hops.collect(),
                cpus: cpus.map(|cpus| cpus.into_iter().collect()),
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(route in any_route()) {
        prop_assert_eq!(read(&route.to_string(), None), Ok(route));
    }

    #[test]
    fn no_words_make_the_parser_panic(words in prop::collection::vec(any_word(), 0..8)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for family in [None, Some(Family::Inet), Some(Family::Inet6)] {
            let _ = route(&words, family);
            let _ = selector(&words, family);
        }
    }
}

fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "via",
            "dev",
            "inet6",
            "inet",
            "default",
            "to",
            "root",
            "0/0",
            "198.18.2.0/24",
            "2001:db8::/32",
            "198.18.1.2",
            "fe80::1",
            "eth1",
            "proto",
            "xdp",
            "metric",
            "nexthop",
            "weight",
            "cpu",
            "0-1",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

//! What is refused changes nothing, and says why.

use super::*;

#[test]
fn gateways_are_taken_and_refused_as_linux_does() {
    let mut routing = routing();
    let more = [
        Event::Address(address(ETH0, "fe80::1/64")),
        Event::Local(prefix("fe80::1")),
        Event::Address(address(ETH0, "198.18.7.1/24")),
        Event::Address(address(ETH1, "198.18.7.2/24")),
    ];
    routing.apply(more).unwrap();
    let mut refusal = |via, dev| {
        let route = route(
            if via == "fe80::1" { "2001:db8:9::/48" } else { "198.19.9.0/24" },
            Some(via),
            dev,
        );
        add(&mut routing, route).err().map(|refusal| refusal.message)
    };
    assert_eq!(refusal("fe80::1", Some("eth1")), None, "ours is on another link");
    let ours =
        "fe80::1 cannot be a next hop: it is an address of this host, or a broadcast address";
    assert_eq!(refusal("fe80::1", Some("eth0")).as_deref(), Some(ours));
    let several = refusal("198.18.7.9", None).unwrap();
    assert!(
        several.starts_with("next hop 198.18.7.9 is on several interfaces: say which with 'dev'")
    );
    assert_eq!(refusal("198.18.7.9", Some("eth1")), None);
    let in_no_subnet = refusal("169.254.7.7", Some("eth1")).unwrap();
    assert!(
        in_no_subnet.starts_with("next hop 169.254.7.7 is in no subnet of eth1"),
        "{in_no_subnet}"
    );
}

#[test]
fn what_is_refused_and_how_it_is_said() {
    let mut routing = routing_with(limits(2, 0));
    let first = route("198.19.1.0/24", Some("198.18.2.2"), Some("eth1"));
    add(&mut routing, first.clone()).unwrap();
    let rows = [
        (
            first,
            "route 198.19.1.0/24 exists already (via 198.18.2.2 dev eth1): use 'route replace', or delete it first",
        ),
        (
            route("198.19.2.0/24", Some("198.18.2.2"), Some("eth7")),
            "there is no interface eth7: this forwarder has eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64",
        ),
        (
            route("198.19.2.0/24", None, Some("eth9")),
            "eth9 is not an interface of this forwarder (eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64): start it with '--iface …,eth9'",
        ),
        (
            route("198.19.2.0/24", Some("198.18.9.9"), None),
            "next hop 198.18.9.9 is on no interface of this forwarder (eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64)",
        ),
        (
            route("198.19.2.0/24", Some("198.18.9.9"), Some("eth0")),
            "next hop 198.18.9.9 is in no subnet of eth0 (198.18.1.1/24): give eth0 an address in the next hop's subnet, or correct the next hop",
        ),
        (
            route("198.19.2.0/24", Some("198.18.1.1"), None),
            "198.18.1.1 cannot be a next hop: it is an address of this host, or a broadcast address",
        ),
        (
            route("198.19.2.0/24", Some("224.0.0.1"), Some("eth0")),
            "224.0.0.1 cannot be a next hop: it is no host's address",
        ),
        (
            route("198.19.2.0/24", Some("fe80::1"), None),
            "next hop fe80::1 is link-local: say which interface with 'dev'",
        ),
        (
            route("198.19.2.0/24", None, None),
            "198.19.2.0/24: a route needs a next hop: 'via ADDRESS', 'dev INTERFACE' or both",
        ),
        (
            route("2001:db8:5::/48", Some("2001:db8:2::2"), None),
            "the IPv6 table is full (0 routes): start the daemon with '--routes6-max N'",
        ),
    ];
    for (route, message) in rows {
        assert_eq!(add(&mut routing, route).unwrap_err().message, message);
    }
    add(&mut routing, route("198.19.2.0/24", Some("198.18.1.2"), None)).unwrap();
    let full = add(&mut routing, route("198.19.3.0/24", Some("198.18.1.2"), None)).unwrap_err();
    assert_eq!(
        full.message,
        "the IPv4 table is full (2 routes): start the daemon with '--routes4-max N'"
    );
    let replace = route("198.19.2.0/24", Some("198.18.1.3"), None);
    routing.add(replace, Existing::Replace).unwrap();
    assert_eq!(routing.counts(), Counts { routes4: 2, routes6: 0 });

    let missing = routing.delete(&exact("198.19.9.0/24")).unwrap_err();
    assert_eq!(missing.message, "no such route: 198.19.9.0/24");
    let other = Selector { via: Some("198.18.2.9".parse().unwrap()), ..exact("198.19.1.0/24") };
    assert_eq!(
        routing.delete(&other).unwrap_err().message,
        "no such route: 198.19.1.0/24 via 198.18.2.9; it is via 198.18.2.2 dev eth1"
    );
    assert_eq!(routing.counts().routes4, 2);
}

#[test]
fn a_load_is_done_whole_or_not_at_all() {
    let mut routing = routing();
    add(&mut routing, route("198.19.0.0/24", Some("198.18.2.2"), None)).unwrap();
    let before = (routing.table.fib.clone(), routing.show(&Selector::default()));
    let good = |third: u8| route(&format!("198.19.{third}.0/24"), Some("198.18.1.2"), None);

    let mut wrong_at_the_end: Vec<Route> = (1..200).map(good).collect();
    wrong_at_the_end.push(route("198.19.201.0/24", Some("198.18.77.1"), None));
    let refusal = routing.load(wrong_at_the_end, Existing::Refuse).unwrap_err();
    assert_eq!(refusal.index, Some(199));
    let twice = vec![good(1), good(2), good(1)];
    let refusal = routing.load(twice.clone(), Existing::Refuse).unwrap_err();
    assert_eq!((refusal.index, &*refusal.message), (Some(2), "route 198.19.1.0/24 is there twice"));
    assert_eq!((routing.table.fib.clone(), routing.show(&Selector::default())), before);

    // The kernel refuses one in the middle: what was written is taken back.
    // One word for the new next hop, then twenty prefixes, which are one write of all or none.
    for fails_after in 0..2 {
        routing.table.fails_after = Some(fails_after);
        let replacing = (0..20).map(good).collect();
        let refusal = routing.load(replacing, Existing::Replace).unwrap_err();
        assert!(refusal.message.ends_with(": nothing was changed"), "{}", refusal.message);
        routing.table.fails_after = None;
        let fib: Vec<Prefix> = routing.table.fib.keys().copied().collect();
        assert_eq!(fib, before.0.keys().copied().collect::<Vec<_>>());
        assert_eq!(routing.show(&Selector::default()), before.1);
        assert_eq!(routing.counts().routes4, 1);
    }
    assert_eq!(routing.load(twice.clone(), Existing::Replace), Ok(3));

    // All at one instant: what is not in it goes, and one that is there twice is refused.
    let shown = routing.show(&Selector::default());
    let refusal = routing.load(twice.clone(), Existing::Flush).unwrap_err();
    assert_eq!((refusal.index, &*refusal.message), (Some(2), "route 198.19.1.0/24 is there twice"));
    assert_eq!((routing.show(&Selector::default()), routing.table.swings), (shown.clone(), 0));
    assert_eq!(routing.load(vec![good(1), good(7)], Existing::Flush), Ok(2));
    assert_eq!((routing.counts().routes4, routing.table.swings), (2, 1));
    let entries: Vec<String> =
        routing.show(&Selector::default()).iter().map(|it| it.route.prefix.to_string()).collect();
    assert_eq!(entries, ["198.19.1.0/24", "198.19.7.0/24"]);
    let back = shown.into_iter().map(|entry| entry.route).collect();
    assert_eq!(routing.load(back, Existing::Flush), Ok(3));
    assert_eq!(routing.counts().routes4, 3);
    assert_eq!(
        routing.flush(&Selector { dev: Some("eth0".to_owned()), ..Selector::default() }),
        Ok(2)
    );
    assert_eq!(routing.counts().routes4, 1);
}

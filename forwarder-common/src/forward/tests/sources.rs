//! Sources that must be reached by the interface they come in by, or by some.

use super::*;
use crate::abi::{BucketRange, INTERFACE_LOOSE, INTERFACE_STRICT};

fn walk_from(source: [u8; 4], flags: u16, tables: &NaiveTables) -> Verdict {
    let interface = Interface { slot: 1, mac: MAC, flags };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    let mut frame = ipv4(MAC, source, TO4, 64, 18);
    forward(&mut Packet::from_slice(&mut frame), &ingress, tables, &Unsteered)
}

#[test]
fn a_source_is_reached_by_its_interface_or_by_some_or_goes_up() {
    let tables = tables();
    // By the third octet of the source, which has a route to …
    for (what, octet, strict, loose) in [
        ("what Linux alone can follow", 0, false, false),
        ("this host", 1, false, false),
        ("another interface", 2, false, true),
        ("the interface itself", 3, true, true),
        ("an interface that is not ours", 4, false, true),
        ("a next hop that is not resolved", 5, false, true),
        ("a next hop that does not answer", 6, false, true),
        ("an interface that is down", 7, false, true),
        ("an interface that takes no frames", 8, false, true),
        ("nothing", 99, false, false),
    ] {
        let source = [198, 18, octet, 9];
        for (flags, is_reached) in [(0, true), (INTERFACE_STRICT, strict), (INTERFACE_LOOSE, loose)]
        {
            let verdict = walk_from(source, flags, &tables);
            if is_reached {
                assert!(
                    matches!(verdict, Verdict::Redirect { .. }),
                    "{what}, {flags}: {verdict:?}"
                );
            } else {
                assert_eq!(verdict, Verdict::Pass(Reason::RpFilter), "{what}, {flags}");
            }
        }
    }
    // IPv6 has no such thing.
    let interface = Interface { slot: 1, mac: MAC, flags: INTERFACE_STRICT };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    let mut frame = ipv6_with(|_| {});
    let verdict = forward(&mut Packet::from_slice(&mut frame), &ingress, &tables, &Unsteered);
    assert!(matches!(verdict, Verdict::Redirect { .. }), "{verdict:?}");
}

#[test]
fn of_several_ways_back_that_of_the_flow_counts() {
    const START: u32 = 64;
    let mut tables = tables();
    // Half of the buckets lead back by the interface itself.
    let route = ROUTE_IDS_FIRST + 100;
    tables.words.insert(route, RouteWord::group(BucketRange::new(START, 64)));
    tables.buckets = (START..START + 64).map(|at| (at, 1 + at % 2)).collect();
    tables.routes4.insert(([198, 18, 100, 0], 24), route);
    let sources = (0..200).map(|host| [198, 18, 100, host]);
    let mut reached = 0;
    for source in sources {
        match walk_from(source, INTERFACE_STRICT, &tables) {
            Verdict::Redirect { .. } => reached += 1,
            verdict => assert_eq!(verdict, Verdict::Pass(Reason::RpFilter)),
        }
        let loose = walk_from(source, INTERFACE_LOOSE, &tables);
        assert!(matches!(loose, Verdict::Redirect { .. }), "{loose:?}");
    }
    assert!((60..140).contains(&reached), "{reached} of 200");
}

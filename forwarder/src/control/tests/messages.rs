//! What goes through JSON comes back as it was.

use std::net::IpAddr;

use proptest::prelude::*;

use super::super::{
    chunk::{Chunk, load_chunks},
    frame::FRAME_MAX,
    protocol::{
        Hello, ITEMS_PER_FRAME, PROTOCOL_VERSION, Request, Response, decode, encode,
        encode_response,
    },
};
use crate::{
    engine::Refusal,
    route::{
        Existing, NEXT_HOPS_MAX, NeighbourEntry, NextHop, PrefixMatch, Route, RouteEntry,
        RouteState, Selector, WEIGHT_MAX, grammar::tests::any_route,
    },
};

fn any_selector() -> impl Strategy<Value = Selector> {
    let prefix = (any_route(), 0..4u8).prop_map(|(route, which)| match which {
        0 => None,
        1 => Some(PrefixMatch::Exact(route.prefix)),
        2 => Some(PrefixMatch::Root(route.prefix)),
        _ => Some(PrefixMatch::Match(route.prefix)),
    });
    let cpus = any::<Option<Vec<u32>>>();
    (any::<Option<bool>>(), prefix, any::<Option<IpAddr>>(), any::<Option<String>>(), cpus)
        .prop_map(|(ipv4, prefix, via, dev, cpus)| Selector {
            ipv4,
            prefix,
            via,
            dev,
            skipped: false,
            cpus,
        })
}

fn any_existing() -> impl Strategy<Value = Existing> {
    prop_oneof![Just(Existing::Refuse), Just(Existing::Replace), Just(Existing::Append)]
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<u32>(), any::<String>())
            .prop_map(|(protocol, version)| Request::Hello(Hello { protocol, version })),
        Just(Request::Status),
        Just(Request::Stats),
        (any_route(), any_existing()).prop_map(|(route, existing)| Request::RouteAdd {
            route,
            existing,
            xdp_only: true
        }),
        any_existing().prop_map(|existing| Request::RouteLoad { existing, xdp_only: false }),
        prop::collection::vec(any_route(), 0..4)
            .prop_map(|routes| Request::LoadChunk(Chunk::from(&routes[..]))),
        any::<u64>().prop_map(Request::LoadCommit),
        any_selector().prop_map(Request::RouteDelete),
        any_selector().prop_map(Request::RouteFlush),
        any_selector().prop_map(Request::RouteShow),
        any::<IpAddr>().prop_map(Request::RouteGet),
        Just(Request::Neighbours),
        Just(Request::Unload),
    ]
}

fn any_entry() -> impl Strategy<Value = RouteEntry> {
    let state = prop_oneof![
        any::<String>().prop_map(|mac| RouteState::Forwarding { mac }),
        Just(RouteState::Connected),
        any::<String>().prop_map(|on| RouteState::Pending { on }),
        any::<String>().prop_map(|reason| RouteState::Unusable { reason }),
    ];
    (any_route(), prop::collection::vec(state, 1..4)).prop_map(|(route, states)| RouteEntry {
        route,
        states,
        linux: None,
    })
}

fn any_neighbour() -> impl Strategy<Value = NeighbourEntry> {
    (any::<IpAddr>(), any::<String>(), any::<Option<String>>(), any::<String>(), any::<u64>())
        .prop_map(|(address, dev, mac, nud, routes)| NeighbourEntry {
            address,
            dev,
            mac,
            nud,
            routes,
        })
}

fn any_response() -> impl Strategy<Value = Response> {
    prop_oneof![
        (any::<u32>(), any::<String>())
            .prop_map(|(protocol, version)| Response::Hello(Hello { protocol, version })),
        (any::<String>(), any::<Option<u64>>())
            .prop_map(|(message, index)| Response::Refused(Refusal { message, index })),
        any::<u32>().prop_map(Response::Parts),
        Just(Response::Ready),
        Just(Response::Done),
        any::<u64>().prop_map(Response::Count),
        Just(Response::Status(super::status())),
        (0..4usize).prop_map(|cpus| Response::Stats(super::snapshot(cpus))),
        any_entry().prop_map(Response::Route),
        prop::collection::vec(any_entry(), 0..4).prop_map(Response::Routes),
        prop::collection::vec(any_neighbour(), 0..4).prop_map(Response::Neighbours),
        Just(Response::End),
    ]
}

proptest! {
    #[test]
    fn requests_come_back(request in any_request()) {
        prop_assert_eq!(decode::<Request>(&encode(&request)).unwrap(), request);
    }

    #[test]
    fn responses_come_back(response in any_response()) {
        prop_assert_eq!(decode::<Response>(&encode(&response)).unwrap(), response);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(
        garbage in prop::collection::vec(any::<u8>(), 0..200),
        request in any_request(),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = decode::<Request>(&garbage);
        let mut damaged = encode(&request);
        let at = at.index(damaged.len());
        damaged[at] ^= garbage.first().copied().unwrap_or(0x20);
        let _ = decode::<Request>(&damaged);
    }
}

#[test]
fn a_response_that_is_too_long_for_a_frame_comes_in_parts() {
    let long = Response::Stats(super::snapshot(64));
    let payloads = encode_response(&long);
    let Response::Parts(count) = decode(&payloads[0]).unwrap() else {
        panic!("it came in one frame of {} bytes", payloads[0].len());
    };
    assert_eq!(payloads.len(), 1 + count as usize);
    assert!(payloads.iter().all(|payload| payload.len() <= FRAME_MAX));
    assert_eq!(decode::<Response>(&payloads[1..].concat()).unwrap(), long);
    assert_eq!(encode_response(&Response::Done).len(), 1);
}

#[test]
fn a_full_chunk_of_the_longest_routes_fits_into_a_frame() {
    // Every byte of an interface's name may need an escape of six.
    let next_hop = NextHop {
        via: "2001:db8:1111:2222:3333:4444:5555:6666".parse().ok(),
        dev: Some("\u{1}".repeat(15)),
        weight: WEIGHT_MAX,
    };
    let prefix = "2001:db8:1111:2222:3333:4444:5555:6660/124".parse().unwrap();
    // As many CPUs as count like one next hop, and one less than count like one more.
    for (next_hops, cpus) in [(1, 0), (1, 1), (1, 16), (1, 4096), (NEXT_HOPS_MAX, 0), (64, 4096)] {
        let cpus = (cpus > 0).then(|| (0..cpus).map(|cpu| 4096 - cpus + cpu).collect());
        let route = Route { prefix, next_hops: vec![next_hop.clone(); next_hops].into(), cpus };
        let routes = vec![route; 3 * ITEMS_PER_FRAME];
        let chunks: Vec<_> = load_chunks(&routes).collect();
        assert_eq!(chunks.iter().map(|chunk| chunk.len()).sum::<usize>(), routes.len());
        for chunk in chunks {
            let size = encode(&Request::LoadChunk(Chunk::from(chunk))).len();
            assert!(size <= FRAME_MAX, "{size}");
        }
    }
    assert_eq!(load_chunks(&[]).count(), 0);
}

#[test]
fn a_route_that_is_too_long_for_any_frame_is_sent_alone() {
    let next_hop = NextHop { via: None, dev: None, weight: 1 };
    let prefix = "198.19.0.0/16".parse().unwrap();
    let routes = [1, ITEMS_PER_FRAME + 1, 1].map(|count| Route {
        prefix,
        next_hops: vec![next_hop.clone(); count].into(),
        cpus: None,
    });
    assert_eq!(load_chunks(&routes).map(<[Route]>::len).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn both_sides_are_told_which_of_them_to_upgrade() {
    let old = Hello { protocol: PROTOCOL_VERSION, version: "0.1.0".to_owned() };
    let new = Hello { protocol: PROTOCOL_VERSION + 1, version: "0.2.0".to_owned() };
    assert_eq!(Hello::mismatch(&old, &old), None);
    assert_eq!(
        Hello::mismatch(&old, &new).unwrap(),
        "this command is older than the running daemon (forwarder 0.1.0 with protocol 5, and 0.2.0 with protocol 6): upgrade the command"
    );
    assert_eq!(
        Hello::mismatch(&new, &old).unwrap(),
        "this command is newer than the running daemon (forwarder 0.2.0 with protocol 6, and 0.1.0 with protocol 5): restart the daemon with the new version"
    );
}

#[test]
fn the_hello_and_the_refusal_keep_their_form() {
    let hello = Hello { protocol: 1, version: "0.1.0".to_owned() };
    let json = r#"{"hello":{"protocol":1,"version":"0.1.0"}}"#;
    assert_eq!(encode(&Request::Hello(hello.clone())), json.as_bytes());
    assert_eq!(encode(&Response::Hello(hello)), json.as_bytes());
    assert_eq!(encode(&Response::refused("no")), br#"{"refused":{"message":"no","index":null}}"#);
}

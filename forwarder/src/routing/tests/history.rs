//! Any history of commands and kernel events leaves in the tables what the rib wants.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{table::Way, *};
use crate::rib::Target;

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Add {
        prefix: Prefix,
        hop: u8,
    },
    /// A weighted next hop more, for all CPUs or for some.
    Append {
        prefix: Prefix,
        hop: u8,
        weight: u16,
        cpus: Option<Vec<u32>>,
    },
    Delete(Prefix),
    DeleteOf {
        prefix: Prefix,
        cpu: u32,
    },
    /// The kernel refuses a write some writes later.
    Fail(u32),
    /// No other local prefix can be marked as one.
    NoRoomForLocals,
    Neighbour {
        ifindex: u32,
        host: u8,
        state: NeighbourState,
    },
    NeighbourGone {
        ifindex: u32,
        host: u8,
    },
    Carrier {
        ifindex: u32,
        carrier: bool,
    },
    Local {
        prefix: Prefix,
        present: bool,
    },
    Again,
}

fn some_prefix() -> impl Strategy<Value = Prefix> {
    (22u8..=32, 0u8..8, 0u8..8).prop_map(|(len, third, fourth)| {
        let net = ipnet::Ipv4Net::new([198, 18, third, fourth].into(), len).unwrap();
        Prefix::new(net.trunc().into()).unwrap()
    })
}

fn some_step() -> impl Strategy<Value = Step> {
    let ifindex = || prop_oneof![Just(ETH0), Just(ETH1)];
    let state = prop_oneof![
        Just(NeighbourState::Reachable),
        Just(NeighbourState::Stale),
        Just(NeighbourState::Failed),
        Just(NeighbourState::Incomplete)
    ];
    prop_oneof![
        4 => (some_prefix(), 0u8..4).prop_map(|(prefix, hop)| Step::Add { prefix, hop }),
        4 => (some_prefix(), 0u8..8, 1u16..4, prop_oneof![
            2 => Just(None),
            1 => prop::sample::subsequence(vec![0, 1, 2, 5], 1..4).prop_map(Some),
        ])
            .prop_map(|(prefix, hop, weight, cpus)| Step::Append { prefix, hop, weight, cpus }),
        1 => (some_prefix(), prop::sample::select(vec![0, 1, 2, 5]))
            .prop_map(|(prefix, cpu)| Step::DeleteOf { prefix, cpu }),
        1 => (0..200u32).prop_map(Step::Fail),
        1 => Just(Step::NoRoomForLocals),
        2 => some_prefix().prop_map(Step::Delete),
        3 => (ifindex(), 0u8..8, state)
            .prop_map(|(ifindex, host, state)| Step::Neighbour { ifindex, host, state }),
        1 => (ifindex(), 0u8..8).prop_map(|(ifindex, host)| Step::NeighbourGone { ifindex, host }),
        1 => (ifindex(), any::<bool>())
            .prop_map(|(ifindex, carrier)| Step::Carrier { ifindex, carrier }),
        2 => (some_prefix(), any::<bool>())
            .prop_map(|(prefix, present)| Step::Local { prefix, present }),
        1 => Just(Step::Again),
    ]
}

fn take_step(routing: &mut Routing<FakeTable>, step: Step) {
    let host = |ifindex, host: u8| {
        let third = if ifindex == ETH0 { 1 } else { 2 };
        format!("198.18.{third}.{host}")
    };
    match step {
        Step::Add { prefix, hop } => {
            let (via, dev) = [(Some(2), "eth0"), (None, "eth0"), (Some(3), "eth1"), (None, "eth1")]
                [usize::from(hop)];
            let third = if dev == "eth0" { 1 } else { 2 };
            let via = via.map(|fourth: u8| IpAddr::from([198, 18, third, fourth]));
            let next_hop = NextHop { via, dev: Some(dev.to_owned()), weight: 1 };
            // Refused where the next hop has become local: then nothing changes.
            let route = Route { prefix, next_hops: [next_hop].into(), cpus: None };
            command(routing, |routing| drop(routing.add(route, Existing::Replace)));
        }
        Step::Append { prefix, hop, weight, cpus } => {
            let (third, dev) = if hop % 2 == 0 { (1, "eth0") } else { (2, "eth1") };
            let via = Some(IpAddr::from([198, 18, third, hop]));
            let next_hop = NextHop { via, dev: Some(dev.to_owned()), weight };
            let route = Route { prefix, next_hops: [next_hop].into(), cpus };
            command(routing, |routing| drop(routing.add(route, Existing::Append)));
        }
        Step::DeleteOf { prefix, cpu } => {
            let selector = Selector { cpus: Some(vec![cpu]), ..exact(&prefix.to_string()) };
            command(routing, |routing| drop(routing.delete(&selector)));
        }
        Step::Fail(writes) => routing.table.fails_after = Some(writes),
        Step::NoRoomForLocals => routing.table.room_for_locals = Some(0),
        Step::Delete(prefix) => {
            let there = routing.rib.route(prefix).is_some();
            let selector =
                Selector { prefix: Some(PrefixMatch::Exact(prefix)), ..Selector::default() };
            let fails =
                routing.table.fails_after.is_some() || routing.table.room_for_locals.is_some();
            command(routing, |routing| {
                assert!(routing.delete(&selector).is_ok() == there || fails);
            });
        }
        Step::Neighbour { ifindex, host: number, state } => {
            let mut event = neighbour(ifindex, &host(ifindex, number), state);
            event.mac = event.mac.map(|_| [2, 0, 0, 0, ifindex.to_le_bytes()[0], number]);
            hear(routing, Event::Neighbour(event));
        }
        Step::NeighbourGone { ifindex, host: number } => {
            let address = host(ifindex, number).parse().unwrap();
            hear(routing, Event::NeighbourGone { ifindex, address });
        }
        Step::Carrier { ifindex, carrier } => {
            let name = if ifindex == ETH0 { "eth0" } else { "eth1" };
            hear(routing, Event::Link(Link { carrier, ..link(ifindex, name) }));
        }
        Step::Local { prefix, present: true } => {
            hear(routing, Event::Local(prefix));
        }
        Step::Local { prefix, present: false } => {
            hear(routing, Event::LocalGone(prefix));
        }
        Step::Again => {
            heal(routing);
            let before = (routing.table.fib.clone(), routing.table.words.clone());
            let links = routing.rib.links().values().cloned().collect();
            routing.apply([Event::Links(links)]).unwrap();
            let after = (routing.table.fib.clone(), routing.table.words.clone());
            assert_eq!(after, before, "a resync without news changes nothing");
        }
    }
}

/// The kernel refuses nothing any more.
fn heal(routing: &mut Routing<FakeTable>) {
    (routing.table.fails_after, routing.table.room_for_locals) = (None, None);
    routing.apply([]).unwrap();
    assert!(routing.table.punted.is_empty());
}

/// A command that fails has changed nothing.
fn command(routing: &mut Routing<FakeTable>, run: impl FnOnce(&mut Routing<FakeTable>)) {
    let fails = routing.table.fails_after.is_some();
    let before = (routing.table.fib.clone(), routing.show(&Selector::default()));
    run(routing);
    if fails && routing.table.fails_after.is_none() {
        assert_eq!((routing.table.fib.clone(), routing.show(&Selector::default())), before);
    }
}

/// An event whose consequences could not all be written is followed later.
fn hear(routing: &mut Routing<FakeTable>, event: Event) {
    let fails = routing.table.fails_after.is_some();
    let done = routing.apply([event]);
    let has_failed = fails && routing.table.fails_after.is_none();
    let is_full = routing.table.room_for_locals.is_some();
    assert!(done.is_ok() || has_failed || is_full, "{done:?}");
    let is_punted = !routing.table.punted.is_empty();
    assert!(is_punted || !is_blind(routing), "packets of this host could be forwarded");
    assert!(!is_punted || done.is_err());
}

/// Whether something that is for this host leads elsewhere, or may be forwarded from.
fn is_blind(Routing { rib, table, .. }: &Routing<FakeTable>) -> bool {
    let mut locals = rib.prefixes().filter(|prefix| rib.target(*prefix) == Some(Target::Local));
    let is_lost = |local: Prefix| {
        table.fib.get(&local) != Some(&ROUTE_LOCAL) || !table.locals.contains(&local)
    };
    let mut below = table.fib.iter().filter(|(prefix, _)| rib.is_hidden(**prefix));
    locals.any(is_lost) || below.any(|(_, route)| *route != ROUTE_LOCAL)
}

/// What becomes of packets of any flow, told from the rib alone and one rule after the other.
fn oracle(
    rib: &Rib,
    locals: &BTreeSet<Prefix>,
    cpu: u32,
    address: IpAddr,
) -> Option<Result<BTreeSet<[u8; 6]>, Reason>> {
    if locals.iter().any(|local| local.contains(address)) {
        return Some(Err(Reason::Local));
    }
    let matching = rib.routes_from(None).filter(|(prefix, _)| prefix.contains(address));
    let (_, paths) = matching.max_by_key(|(prefix, _)| prefix.len())?;
    let own = paths.cpus().get(&cpu).map_or(paths.members(), Vec::as_slice);
    if let [Member { hop: Hop { ifindex, via: None }, .. }] = own {
        let host = Hop { ifindex: *ifindex, via: Some(address) };
        let is_valid = rib.neighbour(host).is_some_and(|it| it.state.is_valid());
        return Some(rib.way(if is_valid { host } else { own[0].hop }).map(mac));
    }
    let ways: Vec<Way> = own.iter().map(|member| rib.way(member.hop)).collect();
    let macs: BTreeSet<_> = ways.iter().filter_map(|way| way.map(mac).ok()).flatten().collect();
    Some(match &ways[..] {
        [] => Err(Reason::NoRoute),
        _ if !macs.is_empty() => Ok(macs),
        ways if ways.contains(&Err(Reason::NeighbourPending)) => Err(Reason::NeighbourPending),
        [first, ..] => Err(first.unwrap_err()),
    })
}

/// Tells next hops apart, since each neighbour has its own.
fn mac(adjacency: Adjacency) -> BTreeSet<[u8; 6]> {
    [adjacency.destination_mac].into()
}

/// The same, as the tables have it.
fn found(
    table: &FakeTable,
    cpu: u32,
    address: IpAddr,
) -> Option<Result<BTreeSet<[u8; 6]>, Reason>> {
    let ways = table.ways(cpu, address)?;
    let mac = |index| table.adjacencies[&index].destination_mac;
    let ways: BTreeSet<Result<[u8; 6], Reason>> =
        ways.into_iter().map(|way| way.map(mac)).collect();
    match ways.first() {
        Some(Err(reason)) if ways.len() == 1 => Some(Err(*reason)),
        _ => Some(Ok(ways.into_iter().map(|way| way.expect("somewhere or nowhere")).collect())),
    }
}

proptest! {
    #[test]
    fn any_history_leaves_what_the_rib_wants(steps in proptest::collection::vec(some_step(), 1..60)) {
        let mut routing = routing();
        for step in steps {
            take_step(&mut routing, step);
        }
        // What failed is tried again.
        heal(&mut routing);
        let locals = routing.table.locals.clone();
        for third in 0..8 {
            for fourth in 0..10 {
                let address = IpAddr::from([198, 18, third, fourth]);
                for cpu in [0, 1, 5] {
                    prop_assert_eq!(
                        found(&routing.table, cpu, address),
                        oracle(&routing.rib, &locals, cpu, address),
                        "{} on CPU {}", address, cpu
                    );
                }
            }
        }
        // Everything away: nothing is left but the local table.
        routing.flush(&Selector::default()).unwrap();
        prop_assert_eq!(routing.installed.hops().count(), 0);
        prop_assert!(routing.table.fib.values().all(|route| *route == ROUTE_LOCAL));
    }
}

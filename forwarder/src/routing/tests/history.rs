//! Any history of commands and kernel events leaves in the tables what the rib wants.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Add { prefix: Prefix, hop: u8 },
    Delete(Prefix),
    Neighbour { ifindex: u32, host: u8, state: NeighbourState },
    NeighbourGone { ifindex: u32, host: u8 },
    Carrier { ifindex: u32, carrier: bool },
    Local { prefix: Prefix, present: bool },
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
        2 => some_prefix().prop_map(Step::Delete),
        3 => (ifindex(), 0u8..8, state)
            .prop_map(|(ifindex, host, state)| Step::Neighbour { ifindex, host, state }),
        1 => (ifindex(), 0u8..8).prop_map(|(ifindex, host)| Step::NeighbourGone { ifindex, host }),
        1 => (ifindex(), any::<bool>())
            .prop_map(|(ifindex, carrier)| Step::Carrier { ifindex, carrier }),
        1 => (some_prefix(), any::<bool>())
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
            let next_hop = NextHop { via, dev: Some(dev.to_owned()) };
            // Refused where the next hop has become local: then nothing changes.
            let _ = routing.add(Route { prefix, next_hop }, Existing::Replace);
        }
        Step::Delete(prefix) => {
            let there = routing.rib.route(prefix).is_some();
            let selector =
                Selector { prefix: Some(PrefixMatch::Exact(prefix)), ..Selector::default() };
            assert_eq!(routing.delete(&selector).is_ok(), there);
        }
        Step::Neighbour { ifindex, host: number, state } => {
            let event = neighbour(ifindex, &host(ifindex, number), state);
            routing.apply([Event::Neighbour(event)]).unwrap();
        }
        Step::NeighbourGone { ifindex, host: number } => {
            let address = host(ifindex, number).parse().unwrap();
            routing.apply([Event::NeighbourGone { ifindex, address }]).unwrap();
        }
        Step::Carrier { ifindex, carrier } => {
            let name = if ifindex == ETH0 { "eth0" } else { "eth1" };
            routing.apply([Event::Link(Link { carrier, ..link(ifindex, name) })]).unwrap();
        }
        Step::Local { prefix, present: true } => {
            routing.apply([Event::Local(prefix)]).unwrap();
        }
        Step::Local { prefix, present: false } => {
            routing.apply([Event::LocalGone(prefix)]).unwrap();
        }
        Step::Again => {
            let before = routing.table.fib.clone();
            let links = routing.rib.links().values().cloned().collect();
            routing.apply([Event::Links(links)]).unwrap();
            assert_eq!(routing.table.fib, before, "a resync without news changes nothing");
        }
    }
}

/// What becomes of a packet, told from the rib alone and one rule after the other.
fn oracle(
    rib: &Rib,
    locals: &BTreeSet<Prefix>,
    address: IpAddr,
) -> Option<Result<Adjacency, Reason>> {
    if locals.iter().any(|local| local.contains(address)) {
        return Some(Err(Reason::Local));
    }
    let matching = rib.routes().filter(|(prefix, _)| prefix.contains(address));
    let (_, hop) = matching.max_by_key(|(prefix, _)| prefix.len())?;
    let own = Hop { via: Some(address), ..hop };
    let neighbour_is_valid = rib.neighbour(own).is_some_and(|it| it.state.is_valid());
    Some(rib.way(if hop.via.is_none() && neighbour_is_valid { own } else { hop }))
}

proptest! {
    #[test]
    fn any_history_leaves_what_the_rib_wants(steps in proptest::collection::vec(some_step(), 1..60)) {
        let mut routing = routing();
        for step in steps {
            take_step(&mut routing, step);
        }
        let locals = routing.table.locals.clone();
        for third in 0..8 {
            for fourth in 0..10 {
                let address = IpAddr::from([198, 18, third, fourth]);
                prop_assert_eq!(
                    routing.table.lookup(address),
                    oracle(&routing.rib, &locals, address),
                    "{}", address
                );
            }
        }
        // Everything away: nothing is left but the local table.
        routing.flush(&Selector::default()).unwrap();
        prop_assert_eq!(routing.installed.hops().count(), 0);
        prop_assert!(routing.table.fib.values().all(|route| *route == ROUTE_LOCAL));
    }
}

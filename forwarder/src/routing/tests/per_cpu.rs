//! Next hops that single CPUs have of their own.

use super::*;

const TO: &str = "198.19.0.1";
const PREFIX: &str = "198.19.0.0/16";

fn with_neighbours() -> Routing<FakeTable> {
    let mut routing = routing();
    for (ifindex, address) in [(ETH0, "198.18.1.2"), (ETH1, "198.18.2.2")] {
        let known = neighbour(ifindex, address, NeighbourState::Reachable);
        routing.apply([Event::Neighbour(known)]).unwrap();
    }
    routing
}

fn run(routing: &mut Routing<FakeTable>, command: &str) -> Result<(), String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (command, words) = words.split_first().unwrap();
    let grammar = crate::route::grammar::route;
    let existing = match *command {
        "add" => Existing::Refuse,
        "replace" => Existing::Replace,
        "append" => Existing::Append,
        _ => {
            let selector = crate::route::grammar::exact(words, None).unwrap();
            return routing.delete(&selector).map(drop).map_err(|refusal| refusal.message);
        }
    };
    let added = routing.add(grammar(words, None).unwrap(), existing);
    added.map(drop).map_err(|refusal| refusal.message)
}

/// The egress of each CPU; zero where Linux decides.
fn ports(routing: &Routing<FakeTable>) -> [u32; 4] {
    [0, 1, 2, 5].map(|cpu| match routing.table.lookup_on(cpu, TO.parse().unwrap(), 0) {
        Some(Ok(adjacency)) => adjacency.port,
        Some(Err(Reason::NoRoute)) | None => 0,
        Some(Err(reason)) => panic!("{reason:?}"),
    })
}

#[test]
fn each_cpu_has_its_own_way() {
    let mut routing = with_neighbours();
    run(&mut routing, "add 198.19.0.0/16 via 198.18.1.2").unwrap();
    run(&mut routing, "add 198.19.0.0/16 cpu 1,5 via 198.18.2.2").unwrap();
    assert_eq!(ports(&routing), [ETH0, ETH1, ETH0, ETH1]);
    assert_eq!(routing.counts().routes4, 1, "it is one route");
    let lines = |routing: &Routing<FakeTable>| {
        let entries = routing.show(&Selector::default());
        entries.iter().map(|entry| entry.route.to_string()).collect::<Vec<_>>()
    };
    let shown =
        ["198.19.0.0/16 via 198.18.1.2 dev eth0", "198.19.0.0/16 cpu 1,5 via 198.18.2.2 dev eth1"];
    assert_eq!(lines(&routing), shown);

    // What the others have may change, go and come.
    run(&mut routing, "replace 198.19.0.0/16 via 198.18.2.2").unwrap();
    assert_eq!(ports(&routing), [ETH1; 4]);
    run(&mut routing, "replace 198.19.0.0/16 cpu 5 via 198.18.1.2").unwrap();
    assert_eq!(ports(&routing), [ETH1, ETH1, ETH1, ETH0]);
    run(&mut routing, "del 198.19.0.0/16 cpu 1,5").unwrap();
    assert_eq!(ports(&routing), [ETH1; 4]);
    assert_eq!(lines(&routing), ["198.19.0.0/16 via 198.18.2.2 dev eth1"]);
    run(&mut routing, "del 198.19.0.0/16").unwrap();
    assert_eq!(ports(&routing), [0; 4]);
}

#[test]
fn where_only_single_cpus_have_next_hops_linux_decides_on_the_others() {
    let mut routing = with_neighbours();
    run(&mut routing, "add 198.19.0.0/16 cpu 0-1 via 198.18.1.2").unwrap();
    assert_eq!(ports(&routing), [ETH0, ETH0, 0, 0]);
    run(&mut routing, "add 198.19.0.0/16 via 198.18.2.2").unwrap();
    assert_eq!(ports(&routing), [ETH0, ETH0, ETH1, ETH1]);
    // All that a prefix has goes with it.
    run(&mut routing, "del 198.19.0.0/16").unwrap();
    assert_eq!(routing.table.lookup(TO.parse().unwrap()), None);
    run(&mut routing, "add 198.19.0.0/16 cpu 5 via 198.18.1.2").unwrap();
    run(&mut routing, "del 198.19.0.0/16 cpu 5").unwrap();
    assert_eq!(routing.counts().routes4, 0, "nothing is left of it");
    assert_eq!(routing.installed.hops().count(), 0);
}

#[test]
fn a_cpu_may_have_several_next_hops_and_lose_one() {
    let mut routing = with_neighbours();
    run(&mut routing, "add 198.19.0.0/16 via 198.18.1.2").unwrap();
    run(&mut routing, "append 198.19.0.0/16 cpu 1-2 via 198.18.1.2").unwrap();
    run(&mut routing, "append 198.19.0.0/16 cpu 1-2 via 198.18.2.2 weight 3").unwrap();
    let shares = |routing: &Routing<FakeTable>, cpu| {
        let ways = routing.table.spread(cpu, TO.parse().unwrap()).unwrap();
        let ports = ways.into_iter().map(|way| way.unwrap().port);
        ports.filter(|port| *port == ETH1).count()
    };
    assert_eq!([0, 1, 2, 5].map(|cpu| shares(&routing, cpu)), [0, 768, 768, 0]);
    assert_eq!(routing.table.buckets.len(), 256, "the two share a group");
    let failed = neighbour(ETH1, "198.18.2.2", NeighbourState::Failed);
    routing.apply([Event::Neighbour(failed)]).unwrap();
    assert_eq!([0, 1, 2, 5].map(|cpu| shares(&routing, cpu)), [0; 4]);
    assert_eq!(routing.waiting(), 0);
    run(&mut routing, "del 198.19.0.0/16 cpu 1 via 198.18.1.2").unwrap();
    assert_eq!(routing.waiting(), 1, "CPU 1 has nothing else");
}

#[test]
fn bad_input_is_named() {
    let mut routing = with_neighbours();
    run(&mut routing, "add 198.19.0.0/16 via 198.18.1.2").unwrap();
    run(&mut routing, "add 198.19.0.0/16 cpu 1 via 198.18.2.2").unwrap();
    run(&mut routing, "add 198.18.2.0/24 dev eth1").unwrap();
    let before = routing.show(&Selector::default());
    let connected = "a route without a gateway leads nowhere else and is the same on all CPUs: give every next hop its 'via ADDRESS'";
    for (command, message) in [
        ("add 198.19.0.0/16 cpu 0,3 via 198.18.2.2", "this machine has no CPU 3: it has 0-2,5".to_owned()),
        ("del 198.19.0.0/16 cpu 2", format!("CPU 2 has no next hops of its own for {PREFIX}")),
        ("del 198.19.0.0/16 cpu 1,2", format!("CPU 2 has no next hops of its own for {PREFIX}")),
        ("del 198.19.0.0/16 cpu 1 via 198.18.1.2", "no such route: 198.19.0.0/16 via 198.18.1.2; it is via 198.18.2.2 dev eth1".to_owned()),
        ("del 198.20.0.0/16 cpu 1", "no such route: 198.20.0.0/16".to_owned()),
        (
            "add 198.19.0.0/16 cpu 0-1 via 198.18.2.2",
            "CPU 1 has next hops of its own for 198.19.0.0/16 already (via 198.18.2.2 dev eth1): use 'route replace 198.19.0.0/16 cpu 1 …', or take them back with 'route del 198.19.0.0/16 cpu 1'".to_owned(),
        ),
        ("append 198.19.0.0/16 cpu 1 via 198.18.2.2", "File exists: 198.19.0.0/16 would lead via 198.18.2.2 dev eth1 twice on CPU 1".to_owned()),
        ("add 198.18.2.0/24 cpu 1 via 198.18.1.2", format!("198.18.2.0/24: {connected}")),
        ("add 198.19.1.0/24 cpu 1 dev eth1", format!("198.19.1.0/24: {connected}")),
    ] {
        assert_eq!(run(&mut routing, command).unwrap_err(), message, "{command}");
        assert_eq!(routing.show(&Selector::default()), before, "{command}");
    }
}

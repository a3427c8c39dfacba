//! A strict reader of the text format, promtool, and snapshots of all kinds.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::{Command, Stdio},
};

use forwarder_common::verdict::{Reason, SLOT_REASONS, SLOTS};
use proptest::prelude::*;

use crate::{
    engine::{InterfaceStatus, Status},
    route::NextHop,
    snapshot::{After, Count, CpuCounters, InterfaceCounters, RouteCounters, Snapshot},
};

pub(super) type Labels = BTreeMap<String, String>;

/// What a scrape said: family → labels → value.
pub(super) type Scraped = BTreeMap<String, BTreeMap<Labels, f64>>;

/// Panics where a scraper would refuse: no HELP and TYPE before a sample, a family in two places, a
/// sample that is there twice, a malformed label.
pub(super) fn parse(text: &str) -> Scraped {
    let mut families = Scraped::new();
    let mut described: Option<(String, Option<String>)> = None;
    assert!(text.ends_with('\n'), "the last line has no end");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect(line);
            assert!(!help.is_empty(), "{line}");
            assert!(families.insert(name.to_owned(), BTreeMap::new()).is_none(), "twice: {line}");
            described = Some((name.to_owned(), None));
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect(line);
            let family = described.as_mut().expect("TYPE before HELP");
            assert_eq!(family.0, name);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family.1 = Some(kind.to_owned());
        } else {
            let (name, labels, value) = sample(line);
            let family = described.as_ref().expect(line);
            assert_eq!(family.0, name, "a sample outside its family");
            assert!(family.1.is_some(), "no TYPE before {line}");
            let value = value.parse().expect(line);
            let before = families.get_mut(&name).expect(line).insert(labels, value);
            assert_eq!(before, None, "twice: {line}");
        }
    }
    families
}

fn sample(line: &str) -> (String, Labels, &str) {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, value) = inside.split_once("=\"").expect(line);
            let (value, after) = unquote(value);
            assert!(labels.insert(label.to_owned(), value).is_none(), "twice: {line}");
            match after.strip_prefix(',') {
                Some(next) => inside = next,
                None => break rest = after.strip_prefix('}').expect(line),
            }
        }
    }
    (name.to_owned(), labels, rest.strip_prefix(' ').expect(line))
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next().expect("a label without an end") {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match characters.next().expect("half an escape").1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                other => panic!("unknown escape {other:?}"),
            }),
            (_, other) => value.push(other),
        }
    }
}

/// Runs `promtool check metrics`; without promtool it says so, or panics where that is required.
pub(super) fn promtool_accepts(text: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) if std::env::var_os("FORWARDER_REQUIRE_ALL").is_some_and(|all| all == "1") => {
            panic!("promtool is needed (Debian: apt install prometheus): {error}")
        }
        Err(error) => return println!("SKIP promtool check metrics: {error}"),
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "promtool: {said}\n{text}");
}

pub(super) fn counters(slots: &[(u32, u64)]) -> CpuCounters {
    let mut counters = CpuCounters::default();
    for &(slot, packets) in slots {
        counters.0[slot as usize] = Count { packets, bytes: packets * 100 };
    }
    counters
}

pub(super) fn status(interfaces: &[(&str, u32)], steering: &str) -> Status {
    let interface = |&(name, ifindex): &(&str, u32)| InterfaceStatus {
        name: name.to_owned(),
        ifindex,
        mode: "native".to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        mtu: 1500,
        up: true,
        carrier: true,
    };
    Status {
        version: "0.1.0".to_owned(),
        name: "lab".to_owned(),
        pid: 7,
        uptime_ms: 61_500,
        kernel: "6.18.0".to_owned(),
        interfaces: interfaces.iter().map(interface).collect(),
        steering: steering.to_owned(),
        routes4: 3,
        routes6: 2,
        routes_waiting: 1,
        audited: 7,
        audit_differences: 0,
        routes4_max: 1 << 20,
        routes6_max: 1 << 18,
        metrics: None,
        notes: vec![],
    }
}

/// Two interfaces, two CPUs, steering from CPU 0 to CPU 1; the sums close.
pub(super) fn small() -> Snapshot {
    let none = CpuCounters::default;
    let ttl = Reason::TtlExpired.slot();
    let local = Reason::Local.slot();
    let no_route = Reason::NoRoute.slot();
    let eth0 = InterfaceCounters {
        name: "eth0".to_owned(),
        ifindex: 2,
        generic: false,
        after: vec![After::default(); 2],
        nic: None,
        ingress: vec![counters(&[(0, 10), (1, 4), (2, 3), (ttl, 1), (local, 2)]), none()],
        worker: vec![none(), counters(&[(0, 3), (1, 2), (no_route, 1)])],
    };
    let eth1 = InterfaceCounters {
        name: "eth1".to_owned(),
        ifindex: 3,
        generic: false,
        after: vec![After::default(); 2],
        nic: None,
        ingress: vec![none(), none()],
        worker: vec![none(), none()],
    };
    let unknown = InterfaceCounters { name: "unknown".to_owned(), ifindex: 0, ..eth1.clone() };
    let interfaces = vec![unknown, eth0, eth1];
    let cpus_online = vec![0, 1];
    Snapshot { uptime_ms: 61_500, cpus_online, interfaces, ..Snapshot::default() }
}

/// Any snapshot whose sums close. Names may hold what only Linux allows, and come twice.
pub(super) fn snapshots() -> impl Strategy<Value = Snapshot> {
    let online = prop::collection::btree_set(0_u32..6, 1..4);
    let interfaces = prop::collection::vec(interface(), 0..4);
    let routes = prop::collection::vec(route(), 0..4);
    (any::<u32>(), online, interfaces, routes).prop_map(|(uptime, online, interfaces, routes)| {
        Snapshot {
            uptime_ms: uptime.into(),
            cpus_online: BTreeSet::into_iter(online).collect(),
            interfaces,
            routes,
            ..Snapshot::default()
        }
    })
}

fn interface() -> impl Strategy<Value = InterfaceCounters> {
    let name = prop_oneof![
        Just("eth0".to_owned()),
        Just("unknown".to_owned()),
        "[a-zäß0-9\"\\\\{},=.@-]{1,15}",
    ];
    let ingress = prop::collection::vec(closed(true), 0..6);
    let worker = prop::collection::vec(closed(false), 0..6);
    (name, 0_u32..3, ingress, worker).prop_map(|(name, ifindex, ingress, worker)| {
        InterfaceCounters {
            name,
            ifindex,
            generic: false,
            ingress,
            worker,
            after: vec![],
            nic: None,
        }
    })
}

/// Counters of one CPU: mostly zeros, rx the sum of the others.
fn closed(may_steer: bool) -> impl Strategy<Value = CpuCounters> {
    let few = prop::collection::vec((1..SLOTS, 1_u64..1 << 40, 1_u64..1 << 40), 0..4);
    few.prop_map(move |few| {
        let mut counters = CpuCounters::default();
        for (slot, packets, bytes) in few {
            if may_steer || slot != 2 {
                counters.0[slot as usize] = Count { packets, bytes };
            }
        }
        counters.0[0] = counters.0[1..].iter().copied().sum();
        assert_eq!(counters.0.len() - SLOT_REASONS as usize, Reason::ALL.len());
        counters
    })
}

fn route() -> impl Strategy<Value = RouteCounters> {
    let via = prop::option::of(prop_oneof![
        (0_u8..3).prop_map(|last| std::net::IpAddr::from([198, 18, 0, last])),
        (0_u16..3).prop_map(|last| std::net::IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last])),
    ]);
    let dev = prop::option::of("eth[0-2]");
    let count = (0_u64..1 << 40, 0_u64..1 << 40);
    let count = count.prop_map(|(packets, bytes)| Count { packets, bytes });
    (via, dev, prop::collection::vec(count, 0..6)).prop_map(|(via, dev, cpus)| RouteCounters {
        next_hops: vec![NextHop { via, dev, weight: 1 }],
        cpus,
    })
}

use forwarder_common::verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED};

use super::*;
use crate::{
    snapshot::{After, Count, Dequeued, Enqueued},
    tracepoints::Missing,
};

fn counters(slots: &[(u32, u64)]) -> CpuCounters {
    let mut counters = CpuCounters::default();
    for &(slot, packets) in slots {
        counters.0[slot as usize] = Count { packets, bytes: packets * 64 };
    }
    counters
}

/// Two CPUs, steering between them, a native interface and a generic one; each loss happened.
fn closed() -> Snapshot {
    let mut after = [After::default(), After::default()];
    // CPU 0: 9 redirected here, 1 not taken, 5 sent and 3 not.
    after[0].lost_to_port.0[Loss::TooBig.slot()] = 1;
    after[0].lost_to_cpu.0[Loss::NoHeadroom.slot()] = 2;
    // CPU 1: 4 redirected as a worker.
    after[1].lost_to_port.0[Loss::NoXmit.slot()] = 4;
    let mut egress = After { sent: 5, ..After::default() };
    egress.unsent.0[Loss::RingFull.slot()] = 3;
    // In generic mode: no part of (E).
    egress.unsent.0[Loss::Stopped.slot()] = 7;
    let native = InterfaceCounters {
        name: "eth0".to_owned(),
        ifindex: 2,
        generic: false,
        ingress: vec![
            counters(&[
                (SLOT_RX, 26),
                (SLOT_REDIRECTED, 9),
                (SLOT_STEERED, 15),
                (Reason::Local.slot(), 2),
            ]),
            counters(&[]),
        ],
        worker: vec![
            counters(&[]),
            counters(&[(SLOT_RX, 6), (SLOT_REDIRECTED, 4), (Reason::NoRoute.slot(), 2)]),
        ],
        after: after.to_vec(),
        nic: None,
    };
    let generic = InterfaceCounters {
        name: "eth1".to_owned(),
        ifindex: 3,
        generic: true,
        ingress: vec![counters(&[(SLOT_RX, 8), (SLOT_REDIRECTED, 8)]), counters(&[])],
        worker: vec![counters(&[]), counters(&[])],
        after: vec![egress, After::default()],
        nic: None,
    };
    Snapshot {
        interfaces: vec![native, generic],
        enqueued: vec![Enqueued { cpu: 0, worker: 1, frames: 13, dropped: 7 }],
        dequeued: vec![Dequeued { cpu: 1, frames: 6, lost: 1 }],
        ..Snapshot::default()
    }
}

fn differences(snapshot: &Snapshot) -> Vec<(&'static str, u64)> {
    let all = unaccounted(snapshot).into_iter();
    all.filter(|(_, frames)| *frames > 0).map(|(it, frames)| (it.label(), frames)).collect()
}

#[test]
fn a_snapshot_that_closes_lacks_nothing() {
    assert_eq!(unaccounted(&closed()), Equation::ALL.map(|equation| (equation, 0)));
    assert_eq!(unaccounted(&Snapshot::default()), Equation::ALL.map(|equation| (equation, 0)));
}

/// What is changed, how, and which equations then differ by how much.
type Row = (&'static str, fn(&mut Snapshot), &'static [(&'static str, u64)]);

#[test]
fn whatever_is_off_is_found_in_its_equation() {
    let rows: [Row; 12] = [
        ("received", |it| it.interfaces[0].ingress[0].0[0].packets += 3, &[("A", 3)]),
        ("passed", |it| it.interfaces[0].ingress[0].0[9].packets += 3, &[("A", 3)]),
        (
            "steered",
            |it| it.interfaces[0].ingress[0].0[2].packets += 1,
            &[("A", 1), ("B", 1), ("F", 1)],
        ),
        (
            "not taken by a CPU",
            |it| it.interfaces[0].after[0].lost_to_cpu.0[0] += 1,
            &[("B", 1), ("F", 1)],
        ),
        ("enqueued", |it| it.enqueued[0].frames += 2, &[("B", 2), ("C", 2)]),
        ("dropped", |it| it.enqueued[0].dropped += 2, &[("C", 2), ("F", 2)]),
        ("dequeued", |it| it.dequeued[0].frames += 2, &[("C", 4)]),
        (
            "received by a worker",
            |it| it.interfaces[0].worker[1].0[0].packets -= 1,
            &[("C", 1), ("D", 1), ("F", 1)],
        ),
        ("passed by a worker", |it| it.interfaces[0].worker[1].0[9].packets += 1, &[("D", 1)]),
        ("not taken by a port", |it| it.interfaces[0].after[1].lost_to_port.0[0] += 1, &[("E", 1)]),
        ("sent", |it| it.interfaces[1].after[0].sent += 1, &[("E", 1)]),
        ("not sent", |it| it.interfaces[1].after[1].unsent.0[0] += 1, &[("E", 1)]),
    ];
    for (what, change, expected) in rows {
        let mut snapshot = closed();
        change(&mut snapshot);
        assert_eq!(differences(&snapshot), expected, "{what}");
    }
}

#[test]
fn what_one_cpu_lacks_another_does_not_make_up_for() {
    let mut snapshot = closed();
    snapshot.interfaces[1].after[0].sent -= 2;
    snapshot.interfaces[1].after[1].sent += 2;
    assert_eq!(differences(&snapshot), [("E", 4)]);
}

#[test]
fn a_redirect_in_generic_mode_needs_no_event() {
    let mut snapshot = closed();
    snapshot.interfaces[1].ingress[0].0[0].packets += 5;
    snapshot.interfaces[1].ingress[0].0[1].packets += 5;
    snapshot.interfaces[1].after[0].lost_to_port.0[0] += 5;
    assert_eq!(differences(&snapshot), []);
    snapshot.interfaces[1].generic = false;
    assert_eq!(differences(&snapshot), [("E", 8)]);
}

#[test]
fn without_a_tracepoint_its_equations_are_not_told() {
    let told = |tracepoint| {
        let missing = vec![Missing { tracepoint, why: "a test".to_owned() }];
        let snapshot = Snapshot { missing, ..closed() };
        unaccounted(&snapshot).into_iter().map(|(it, _)| it.label()).collect::<String>()
    };
    assert_eq!(told(Tracepoint::XdpRedirectErr), "ACD");
    assert_eq!(told(Tracepoint::XdpDevmapXmit), "ABCDF");
    assert_eq!(told(Tracepoint::XdpCpumapEnqueue), "ADE");
    assert_eq!(told(Tracepoint::XdpCpumapKthread), "ABDEF");
    assert_eq!(told(Tracepoint::XdpException), "ABCDEF");
}

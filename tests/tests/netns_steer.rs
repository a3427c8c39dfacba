//! Steering: which CPU forwards a frame, as the counters of each tell.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::{Context, Result, ensure};
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    cpu,
    frame::{ECHO_REPLY4, ECHO_REPLY6, Frame, Ip, Packet},
    host::Host,
    kernel::Forwarded,
    lab::{Lab, router4, router6},
    require, skip,
    stats::{Cpu, Outcomes, Stats},
    testbed::{Counted, SOON, Testbed},
};

const FLOWS: u16 = 256;
/// Frames of one flow.
const TRAIN: u64 = 6;
const PORT: u16 = 9000;
/// Each way, over a connection to the router.
const BYTES: u32 = 300_000;

#[test]
fn many_flows_are_spread_over_all_workers_by_themselves_alone() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_routes("cpus=0,1");
    for like in [Testbed::frame4, Testbed::frame6] {
        let there: Vec<_> = (0..FLOWS).map(|flow| like(0, 1).udp(1000 + flow, 53)).collect();
        let back: Vec<_> = (0..FLOWS).map(|flow| like(1, 0).udp(53, 1000 + flow)).collect();
        let by_cpu0 = spread(&testbed, (0, 1), &there, 0);
        let even = u64::from(FLOWS) / 2;
        assert!(by_cpu0.abs_diff(even) < even / 2, "{by_cpu0} of {FLOWS} flows are for CPU 0");
        assert_eq!(spread(&testbed, (0, 1), &there, 1), by_cpu0, "wherever they arrive");
        assert_eq!(spread(&testbed, (1, 0), &back, 0), by_cpu0, "whichever way they go");
    }
}

/// Sends all on one CPU, and gives back how many CPU 0 has forwarded; CPU 1 has forwarded the rest.
fn spread(testbed: &Testbed, (from, to): (u8, u8), frames: &[Frame], on: usize) -> u64 {
    let send = || cpu::on(on, || testbed.send(from, to, frames));
    let (mut received, Counted { xdp, .. }) = testbed.counted(send).unwrap();
    let mut expected: Vec<_> = frames.iter().map(|frame| Testbed::forwarded(frame, to)).collect();
    received.sort();
    expected.sort();
    assert!(received == expected, "{received:02x?}\n{expected:02x?}");

    let cpus = cpus(&xdp, from);
    let (here, there) = (&cpus[on], &cpus[1 - on]);
    let count = frames.len() as u64;
    let Outcomes { rx, redirected, steered, .. } = &here.ingress;
    assert_eq!((rx.packets, redirected.packets + steered.packets), (count, count));
    assert_eq!((there.worker.rx, there.worker.redirected), (*steered, *steered));
    assert_eq!(there.ingress, Outcomes::default(), "nothing arrives there");
    assert_eq!(here.worker, Outcomes::default(), "nothing is steered to where it is");
    assert_eq!(xdp.redirected(), count);
    cpus[0].redirected()
}

#[test]
fn a_flow_stays_on_one_cpu_in_both_directions() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_routes("cpus=0,1");
    let mut by_cpu = [0; 2];
    for flow in 0..4 {
        for (there, back) in flows(flow) {
            let all: Vec<_> = [(0, &there, 0), (0, &there, 1), (1, &back, 0), (1, &back, 1)]
                .map(|(from, frame, on)| forwarding_cpu(&testbed, from, frame, on))
                .into();
            assert!(all.iter().all(|cpu| *cpu == all[0]), "{all:?}: {there:?}");
            by_cpu[all[0]] += 1;
        }
    }
    assert!(by_cpu.iter().all(|flows| *flows > 0), "{by_cpu:?}");
}

/// Flows of every kind, each as a frame from A to B and one from B to A.
fn flows(number: u16) -> Vec<(Frame, Frame)> {
    let mut flows = Vec::new();
    for like in [Testbed::frame4, Testbed::frame6] {
        let (there, back) = (like(0, 1), like(1, 0));
        flows.extend([
            (there.clone().udp(number, 53), back.clone().udp(53, number)),
            (there.clone().tcp(number, 80, 16), back.clone().tcp(80, number, 16)),
        ]);
        if number == 0 {
            // By addresses alone: whatever it is, it goes by the same CPU.
            flows.push((there.clone().echo(1, 1), back.clone().echo(2, 9)));
            let first = there.clone().udp(number, 53).fragment(0, true);
            flows.push((first, back.clone().udp(9, 9).fragment(2, false)));
        }
    }
    flows
}

/// Sends a few frames of a flow on one CPU, which must arrive in their order, and finds the one
/// CPU that has forwarded them.
fn forwarding_cpu(testbed: &Testbed, from: u8, frame: &Frame, on: usize) -> usize {
    let to = 1 - from;
    let train: Vec<_> = (0..TRAIN).map(|it| frame.clone().payload(&it.to_be_bytes())).collect();
    let send = || cpu::on(on, || testbed.send(from, to, &train));
    let (received, Counted { xdp, .. }) = testbed.counted(send).unwrap();
    let expected: Vec<_> = train.iter().map(|frame| Testbed::forwarded(frame, to)).collect();
    assert_eq!(received, expected);
    match cpus(&xdp, from).map(|cpu| cpu.redirected()) {
        [all, 0] if all == TRAIN => 0,
        [0, all] if all == TRAIN => 1,
        split => panic!("{split:?} of {frame:?}"),
    }
}

#[test]
fn one_worker_gets_all_that_did_not_arrive_there() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_routes("cpus=1");
    let frames: Vec<_> = (0..64).map(|flow| Testbed::frame4(0, 1).udp(flow, 53)).collect();
    for (on, steered) in [(0, 64), (1, 0)] {
        assert_eq!(spread(&testbed, (0, 1), &frames, on), 0, "CPU 0 forwards nothing");
        let send = || cpu::on(on, || testbed.send(0, 1, &frames));
        let (_, Counted { xdp, .. }) = testbed.counted(send).unwrap();
        assert_eq!(xdp.interface("eth0").ingress().steered.packets, steered);
        assert_eq!(cpus(&xdp, 0)[1].redirected(), 64);
    }
}

#[test]
fn what_is_for_the_router_itself_never_takes_the_hop() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().forwarding(false);
    let testbed = Testbed::with_routes(&layout, "--steer cpus=0,1").unwrap();
    let Lab { router, .. } = &testbed.lab;
    for (address, ping) in [
        (IpAddr::from(router4(0)), Lab::frame4(0, 0).v4(|ip| ip.destination = router4(0))),
        (IpAddr::from(router6(0)), Lab::frame6(0, 0).v6(|ip| ip.destination = router6(0))),
    ] {
        for on in [0, 1] {
            // A must ask for the router's MAC address again.
            testbed.lab.a().ip("neigh flush dev eth0").unwrap();
            let talk = || {
                cpu::on(on, || {
                    converse(testbed.lab.a(), router, address)?;
                    pings(&testbed, &ping)
                })
            };
            let ((), Counted { xdp, .. }) = testbed.counted(talk).unwrap();
            let port = xdp.interface("eth0");
            let ingress = port.ingress();
            assert_eq!(ingress.passed_all(), ingress.rx.packets, "{port:#?}");
            assert_eq!(port.worker(), Outcomes::default());
            let question = if address.is_ipv4() { Reason::NotIp } else { Reason::GroupMac };
            assert!(port.passed(question) > 0, "{port:#?}");
            assert!(port.passed(Reason::Local) > u64::from(BYTES / 1460), "{port:#?}");
        }
    }
}

#[test]
fn the_router_answers_while_others_are_forwarded() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_routes("cpus=0,1");
    let frames: Vec<_> =
        (0..FLOWS * 4).map(|flow| Testbed::frame4(0, 1).udp(flow, 53).payload(&[7; 100])).collect();
    let (lab, wires) = (&testbed.lab, &testbed.wires);
    let both = || {
        thread::scope(|scope| {
            let talk = || converse(lab.a(), &lab.router, router4(0).into());
            let conversation = scope.spawn(talk);
            let bytes: Vec<_> = frames.iter().map(Frame::bytes).collect();
            let received = wires[0].stream(&bytes, &wires[1], SOON, |_| true)?;
            conversation.join().expect("nothing panics there")?;
            anyhow::Ok(received)
        })
    };
    let (mut received, Counted { xdp, linux }) = testbed.counted(both).unwrap();
    let mut expected: Vec<_> = frames.iter().map(|frame| Testbed::forwarded(frame, 1)).collect();
    received.sort();
    expected.sort();
    assert!(received == expected);
    let port = xdp.interface("eth0");
    assert_eq!(port.redirected(), frames.len() as u64);
    assert_eq!(port.ingress().passed_all(), port.passed(Reason::Local), "{port:#?}");
    assert_eq!(port.worker().passed_all(), 0, "{port:#?}");
    assert!(cpus(&xdp, 0).iter().all(|cpu| cpu.redirected() > 0), "{port:#?}");
    assert_eq!(linux, Forwarded::default());
}

fn with_routes(workers: &str) -> Testbed {
    let layout = Lab::router().forwarding(false).static_neighbours();
    Testbed::with_routes(&layout, &format!("--steer {workers}")).unwrap()
}

/// The counters of an interface on both CPUs.
fn cpus(xdp: &Stats, link: u8) -> [Cpu; 2] {
    [0, 1].map(|cpu| xdp.interface(&format!("eth{link}")).cpu(cpu))
}

/// A connection to a listener on the router, which sends back what it gets.
fn converse(from: &Host, router: &Host, address: IpAddr) -> Result<()> {
    let to = SocketAddr::new(address, PORT);
    let listener = router.run(|| TcpListener::bind(to))?;
    let near = from.run(|| TcpStream::connect_timeout(&to, SOON))?;
    let (far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(SOON))?;
        stream.set_write_timeout(Some(SOON))?;
    }
    let content: Vec<_> = (0..=250_u8).cycle().take(BYTES as usize).collect();
    thread::scope(|scope| {
        let echo = scope.spawn(|| std::io::copy(&mut (&far).take(BYTES.into()), &mut &far));
        let writer = scope.spawn(|| (&near).write_all(&content));
        let mut answer = vec![0; content.len()];
        (&near).read_exact(&mut answer).context("the router's answer")?;
        writer.join().expect("nothing panics there")?;
        echo.join().expect("nothing panics there")?;
        ensure!(answer == content, "the answer is another");
        Ok(())
    })
}

/// From host A, each of which must be answered.
fn pings(testbed: &Testbed, ping: &Frame) -> Result<()> {
    let reply = if matches!(ping.ip, Ip::V4(_)) { ECHO_REPLY4 } else { ECHO_REPLY6 };
    for sequence in 0..10 {
        let request = ping.clone().echo(7, sequence).payload(b"are you there?");
        testbed.wire(0).send(&request.bytes())?;
        let answers = testbed.wire(0).collect(1, SOON, |frame| {
            let packet = Packet::of_frame(frame);
            packet.is_ok_and(|it| it.icmp().is_some_and(|icmp| icmp.kind == reply))
        })?;
        let answer = Packet::of_frame(&answers[0])?;
        ensure!(answer.is_sound() && answer.ends_with(b"are you there?"), "{answer:?}");
        let word = answer.icmp().context("not ICMP")?.word;
        ensure!(word == 7 << 16 | u32::from(sequence), "an answer to another request");
    }
    Ok(())
}

//! Every kind of frame, in every mode, in both directions, while Linux forwards nothing.

use forwarder_tests::{
    cpu,
    frame::Frame,
    kernel::Forwarded,
    lab::Lab,
    require, skip,
    stats::Count,
    testbed::{Counted, Testbed, beyond4, beyond6},
};

/// Frames of each kind: some for every length, TTL and destination.
const FRAMES: u8 = 48;
/// Of IP packets; zero stands for the shortest.
const LENGTHS: [usize; 4] = [0, 100, 777, 1500];
/// Of a frame on Ethernet, without its checksum: what is shorter gets padding.
const SHORTEST: usize = 60;
const HOP_LIMITS: [u8; 3] = [2, 64, 255];
/// Flows to as many destinations.
const DESTINATIONS: u8 = 16;

#[test]
fn native() {
    every_kind("native", false);
}

#[test]
fn native_steered() {
    every_kind("native", true);
}

#[test]
fn generic() {
    every_kind("generic", false);
}

#[test]
fn generic_steered() {
    every_kind("generic", true);
}

fn every_kind(mode: &str, steered: bool) {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    // Interface indexes beyond the sizes of small tables.
    let layout = Lab::router().forwarding(false).static_neighbours();
    let layout = layout.ifindex(0, 65).ifindex(1, 1001);
    let steer = if steered { "cpus=0,1" } else { "off" };
    let testbed = Testbed::with_routes(&layout, &format!("--mode {mode} --steer {steer}")).unwrap();
    let status = testbed.daemon.forwarder().json("status").unwrap();
    assert_eq!([0, 1].map(|port| &status["interfaces"][port]["mode"]), [mode; 2]);
    let mut cpu = 0;
    for (from, to) in [(0, 1), (1, 0)] {
        for frame in [Testbed::frame4(from, to), Testbed::frame6(from, to)] {
            for frame in [frame.clone().echo(0, 0), frame.clone().udp(0, 0), frame.tcp(0, 0, 2)] {
                let variants = (0..FRAMES).map(|number| variant(&frame, to, number));
                let frames: Vec<_> = variants.collect();
                check(&testbed, (from, to), &frames, cpu, steered);
                cpu = 1 - cpu;
            }
        }
    }
}

/// One of many frames like this one, no two of which are equal.
fn variant(like: &Frame, to: u8, number: u8) -> Frame {
    let index = usize::from(number);
    let destination = number % DESTINATIONS;
    let mut frame = like
        .clone()
        .ttl(HOP_LIMITS[index % HOP_LIMITS.len()])
        .v4(|ip| {
            (ip.destination, ip.identification) = (beyond4(to, destination), number.into());
            (ip.tos, ip.dont_fragment) = (number, number.is_multiple_of(2));
        })
        .v6(|ip| {
            (ip.destination, ip.flow_label) = (beyond6(to, destination.into()), number.into());
            ip.traffic_class = number;
        });
    frame = match LENGTHS[index % LENGTHS.len()] {
        0 => frame.payload(&[number]),
        length => frame.ip_length(length),
    };
    let padding = SHORTEST.saturating_sub(frame.bytes().len());
    frame.padding(padding)
}

/// Sends all of them on one CPU, and looks at each byte and each counter.
fn check(testbed: &Testbed, (from, to): (u8, u8), frames: &[Frame], cpu: usize, steered: bool) {
    let sent = || testbed.send(from, to, frames);
    let (mut received, counted) = testbed.counted(|| cpu::on(cpu, sent)).unwrap();
    let mut expected: Vec<_> = frames.iter().map(|frame| Testbed::forwarded(frame, to)).collect();
    if steered {
        // Flows that go by different CPUs overtake each other.
        received.sort();
        expected.sort();
    }
    assert!(received == expected, "{:?}\n{received:02x?}\n{expected:02x?}", frames[0]);
    assert_eq!(testbed.wire(to).arrived(|_| true).unwrap(), [[0; 0]; 0]);

    let Counted { xdp, linux } = counted;
    assert_eq!(linux, Forwarded::default());
    let names: Vec<_> = xdp.interfaces.iter().map(|it| (it.name.as_str(), it.ifindex)).collect();
    assert_eq!(names, [("eth0", 65), ("eth1", 1001)]);
    assert_eq!(xdp.redirected(), frames.len() as u64);
    let sent = Count {
        packets: frames.len() as u64,
        bytes: frames.iter().map(|frame| frame.bytes().len() as u64).sum(),
    };
    let port = xdp.interface(&format!("eth{from}"));
    let cpus = [0, 1].map(|cpu| port.cpu(cpu));
    assert_eq!(cpus[cpu].ingress.rx, sent, "all on the CPU that sent them");
    let (here, there) = (cpus[cpu].redirected(), cpus[1 - cpu].redirected());
    assert_eq!(here + there, sent.packets);
    assert_eq!(cpus[cpu].ingress.steered.packets, there, "none leaves the CPU of its flow");
    assert_eq!((here > 0, there > 0), (true, steered), "{here}, {there}");
    let bytes = port.ingress().redirected.bytes + port.worker().redirected.bytes;
    assert_eq!(bytes, sent.bytes);
}

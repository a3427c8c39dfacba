//! One fault at a time, of which the daemon does not know: every frame is lost, and counted once,
//! in the place and for the reason that it was lost.

use forwarder_common::loss::Loss;
use forwarder_tests::{
    daemon::Daemon,
    footprint::Footprint,
    frame::Frame,
    kernel::Forwarded,
    lab::Lab,
    offload::Offload,
    require, skip,
    tap::Tap,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
};

use super::{assert_nothing_is_unaccounted, behind_its_back, frames, send};

/// Sent at each fault.
const FRAMES: u16 = 150;
/// Frames that the ring of a tap has room for.
const RING: usize = 128;
/// Of an IP packet: more than the MTU of an egress that has become narrow.
const LENGTH: usize = 1200;

#[derive(Clone, Copy)]
enum Fault {
    /// The peer of the egress does not poll: without NDO_XMIT.
    NoXmit,
    Down,
    Narrow,
    /// The other end of the egress is down, while the egress itself is up.
    PeerDown,
}

impl Fault {
    fn happen(self, lab: &Lab) -> anyhow::Result<()> {
        match self {
            Self::NoXmit => lab.b().offload("eth0", Offload::Gro, false),
            Self::Down => lab.router.ip("link set eth1 down").map(drop),
            Self::Narrow => lab.router.ip("link set eth1 mtu 1000").map(drop),
            Self::PeerDown => lab.b().ip("link set eth0 down").map(drop),
        }
    }

    const fn loss(self) -> Loss {
        match self {
            Self::NoXmit => Loss::NoXmit,
            Self::Down => Loss::EgressDown,
            Self::Narrow => Loss::TooBig,
            Self::PeerDown => Loss::NoQueue,
        }
    }
}

#[test]
fn native() {
    for fault in [Fault::NoXmit, Fault::Down, Fault::Narrow, Fault::PeerDown] {
        every_frame_is_lost(fault, "--mode native --steer off", 0);
    }
}

#[test]
fn native_steered() {
    for fault in [Fault::NoXmit, Fault::Down, Fault::Narrow, Fault::PeerDown] {
        every_frame_is_lost(fault, "--mode native --steer cpus=1", 1);
    }
}

/// The egress's driver takes anything in this mode, and does not tell what became of it.
#[test]
fn generic() {
    for fault in [Fault::Down, Fault::Narrow] {
        every_frame_is_lost(fault, "--mode generic --steer off", 0);
        every_frame_is_lost(fault, "--mode generic --steer cpus=1", 1);
    }
}

/// Frames come in on CPU 0, and are redirected on that one.
fn every_frame_is_lost(fault: Fault, arguments: &str, redirecting: u32) {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, arguments).unwrap();
    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();
    let frames: Vec<Frame> =
        frames(0, 1, FRAMES).into_iter().map(|frame| frame.ip_length(LENGTH)).collect();
    let losing = || {
        behind_its_back(&testbed, || {
            fault.happen(&testbed.lab)?;
            send(&testbed.wires, &footprint, (0, 0), &frames)
        })
    };
    let ((), Counted { xdp, linux }) = testbed.counted(losing).unwrap();
    let (count, loss) = (u64::from(FRAMES), fault.loss());
    let what = format!("{arguments}, {loss:?}: {xdp:#?}");
    let eth0 = xdp.interface("eth0");
    assert_eq!(
        (eth0.ingress().rx.packets, eth0.cpu(0).ingress.rx.packets),
        (count, count),
        "{what}"
    );
    let cpu = eth0.cpu(redirecting);
    assert_eq!((cpu.redirected(), xdp.redirected()), (count, count), "{what}");
    let unsent = xdp.interface("eth1").cpu(redirecting).after.unsent(loss);
    let expected = if matches!(fault, Fault::PeerDown) { (0, count) } else { (count, 0) };
    assert_eq!((cpu.after.lost_to_port(loss), unsent), expected, "{what}");
    assert_eq!(xdp.lost(), count, "{what}");
    assert_eq!(linux, Forwarded::default());
    assert_nothing_is_unaccounted(&testbed);
    let told = testbed.daemon.ok("stats").unwrap();
    let line = told.lines().find(|line| line.contains(loss.label()));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains(loss.sentence()) && line.contains(&count.to_string()), "{line}");
}

/// A ring that nobody empties takes what it has room for, and not a frame more.
#[test]
fn a_full_ring() {
    require!(skip::forwarder());
    for steer in ["off", "cpus=1"] {
        a_full_ring_with(steer);
    }
}

fn a_full_ring_with(steer: &str) {
    let layout = Lab::router().forwarding(false).static_neighbours();
    let lab = layout.build().unwrap();
    let mut tap = lab.router.run(|| Tap::new("eth2")).unwrap();
    // Nothing of its own comes into it.
    lab.router.sysctl("ipv6/conf/eth2/disable_ipv6", "1").unwrap();
    for arguments in [
        &format!("link set eth2 txqueuelen {RING}"),
        "address add 198.18.9.1/24 dev eth2",
        "link set eth2 up",
        "neigh replace 198.18.9.2 lladdr 02:00:00:00:09:02 dev eth2 nud permanent",
    ] {
        lab.router.ip(arguments).unwrap();
    }
    let arguments = format!(
        "--iface eth0,eth1,eth2 --mode native --accept-unfinished-checksums --steer {steer}"
    );
    let daemon = Daemon::start(&lab.router, &arguments).unwrap();
    let wires = lab.hosts.iter().map(|host| host.wire("eth0").unwrap()).collect();
    let testbed = Testbed { daemon, wires, lab };
    testbed.route("198.19.9.0/24 via 198.18.9.2 dev eth2").unwrap();
    assert_eq!(tap.frames().unwrap(), [[0; 0]; 0], "nothing is in the ring");

    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();
    let count = RING + 100;
    let frame = |number: usize| {
        let number = u16::try_from(number).unwrap();
        let frame = Testbed::frame4(0, 1).udp(1024 + number, 9);
        frame.v4(|ip| ip.destination = [198, 19, 9, 1].into())
    };
    let frames: Vec<_> = (0..count).map(frame).collect();
    let filling = || send(&testbed.wires, &footprint, (0, 0), &frames);
    let ((), Counted { xdp, .. }) = testbed.counted(filling).unwrap();
    let (sent, full) = (xdp.after("eth2").sent, xdp.after("eth2").unsent(Loss::RingFull));
    assert_eq!((sent, full), (RING as u64, 100), "{xdp:#?}");
    assert_eq!((xdp.redirected(), xdp.lost()), (count as u64, 100), "{xdp:#?}");
    let received = tap.frames().unwrap();
    assert_eq!(received.len(), RING);
    let ours = |frame: &Vec<u8>| frame[..6] == [2, 0, 0, 0, 9, 2];
    assert!(received.iter().all(ours), "{received:02x?}");
    assert_nothing_is_unaccounted(&testbed);

    // Emptied, it takes frames again.
    let again = || send(&testbed.wires, &footprint, (0, 0), &frames[..10]);
    let ((), Counted { xdp, .. }) = testbed.counted(again).unwrap();
    assert_eq!((xdp.after("eth2").sent, xdp.lost()), (10, 0));
    let all = || Ok((tap.frames()?.len() == 10).then_some(()));
    wait_until("the frames to come out", SOON, all).unwrap();
}

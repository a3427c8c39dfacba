//! Next hops that differ by CPU: which CPU has forwarded a frame, as the counters of each tell, and
//! by which link it came out.

use forwarder_tests::{
    cpu,
    frame::Frame,
    lab::Lab,
    require, skip,
    stats::{Cpu, Stats},
    testbed::{Counted, Testbed},
};
use serde_json::json;

/// The links of CPU 0 and of CPU 1.
const LINKS: [u8; 2] = [1, 2];
const FRAMES: u16 = 128;

/// CPU 1 has its own way, over C; all others go over B.
fn with_own_ways(arguments: &str) -> Testbed {
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, arguments).unwrap();
    for route in [
        "198.19.100.0/24 via 198.18.2.2 dev eth1",
        "198.19.100.0/24 cpu 1 via 198.18.3.2 dev eth2",
        "2001:db8:200::/48 via 2001:db8:2::2 dev eth1",
        "2001:db8:200::/48 cpu 1 via 2001:db8:3::2 dev eth2",
    ] {
        testbed.route(route).unwrap();
    }
    testbed
}

fn flows() -> [Vec<Frame>; 2] {
    let v4 = |flow: u16| {
        let frame = Testbed::frame4(0, 1).v4(|ip| ip.destination = [198, 19, 100, 1].into());
        frame.udp(1000 + flow, 53)
    };
    let v6 = |flow: u16| {
        let to = "2001:db8:200::1".parse().unwrap();
        Testbed::frame6(0, 1).v6(|ip| ip.destination = to).udp(1000 + flow, 53)
    };
    [(0..FRAMES).map(v4).collect(), (0..FRAMES).map(v6).collect()]
}

/// What each CPU has forwarded of what came in by eth0.
fn cpus(xdp: &Stats) -> [Cpu; 2] {
    [0, 1].map(|cpu| xdp.interface("eth0").cpu(cpu))
}

#[test]
fn two_cpus_leave_by_different_interfaces() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_own_ways("");
    for frames in flows() {
        for on in [0, 1] {
            let send = || cpu::on(on, || testbed.scatter(0, &LINKS, &frames));
            let (links, Counted { xdp, .. }) = testbed.counted(send).unwrap();
            assert!(links.iter().all(|link| *link == LINKS[on]), "{links:?} from CPU {on}");
            let by_cpu = cpus(&xdp).map(|cpu| cpu.ingress.redirected.packets);
            let mut expected = [0, 0];
            expected[on] = u64::from(FRAMES);
            assert_eq!(by_cpu, expected);
        }
    }
    // The exception goes, and CPU 1 does as the others.
    let forwarder = testbed.daemon.forwarder();
    forwarder.ok("route del 198.19.100.0/24 cpu 1").unwrap();
    let [frames, _] = flows();
    let links = cpu::on(1, || testbed.scatter(0, &LINKS, &frames)).unwrap();
    assert!(links.iter().all(|link| *link == LINKS[0]), "{links:?}");
}

#[test]
fn a_worker_takes_its_own_way_wherever_a_frame_came_in() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_own_ways("--steer cpus=0,1");
    for frames in flows() {
        let mut both = Vec::new();
        for on in [0, 1] {
            let send = || cpu::on(on, || testbed.scatter(0, &LINKS, &frames));
            let (links, Counted { xdp, .. }) = testbed.counted(send).unwrap();
            // Who forwards has been found by the flow's hash, and the link by who forwards.
            let by_link: [u64; 2] =
                LINKS.map(|link| links.iter().map(|it| u64::from(*it == link)).sum());
            let by_cpu = cpus(&xdp).map(|cpu| cpu.redirected());
            assert_eq!(by_link, by_cpu);
            assert!(by_cpu.iter().all(|count| *count > 16), "{by_cpu:?}");
            let steered = cpus(&xdp)[on].ingress.steered.packets;
            assert_eq!(steered, by_cpu[1 - on], "what is for the other CPU takes the hop");
            both.push(links);
        }
        assert_eq!(both[0], both[1], "a flow has its CPU, and so its link");
    }
}

#[test]
fn what_differs_is_shown_and_can_be_loaded_again() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let testbed = with_own_ways("");
    let forwarder = testbed.daemon.forwarder();
    let v4 = "198.19.100.0/24 via 198.18.2.2 dev eth1 proto xdp";
    assert_eq!(
        forwarder.ok("-4 route show").unwrap(),
        format!("{v4}  # cpu 1: via 198.18.3.2 dev eth2\n")
    );
    let own = "198.19.100.0/24 cpu 1 via 198.18.3.2 dev eth2 proto xdp";
    assert_eq!(forwarder.ok("-4 route show --per-cpu").unwrap(), format!("{v4}\n{own}\n"));
    assert_eq!(forwarder.ok("route get 198.19.100.7").unwrap(), format!("{v4}\n{own}\n"));
    let json = forwarder.json("-4 route show").unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["own_cpus"]), (1, &json!([1])));
    let json = forwarder.json("-4 route show --per-cpu").unwrap();
    assert_eq!((&json[1]["cpus"], &json[1]["dev"]), (&json!([1]), &json!("eth2")));

    let shown = forwarder.ok("route show --per-cpu").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes");
    std::fs::write(&file, &shown).unwrap();
    let load = format!("route load {}", file.display());
    let again = forwarder.call(&load).unwrap();
    assert!(again.stderr.contains("198.19.100.0/24 exists already"), "{}", again.stderr);
    forwarder.ok(&format!("{load} --replace")).unwrap();
    forwarder.ok("route flush all").unwrap();
    assert_eq!(forwarder.ok("route show --per-cpu").unwrap(), "");
    forwarder.ok(&load).unwrap();
    assert_eq!(forwarder.ok("route show --per-cpu").unwrap(), shown);

    for (command, code, message) in [
        (
            "add 198.19.100.0/24 cpu 4095 via 198.18.2.2",
            1,
            "this machine has no CPU 4095: it has 0",
        ),
        ("add 198.19.100.0/24 cpu 4096 via 198.18.2.2", 2, "CPU 4096 is beyond the last"),
        ("add 198.19.100.0/24 cpu x via 198.18.2.2", 2, "'x' is neither the number of a CPU"),
        (
            "add 198.19.100.0/24 cpu 1 via 198.18.2.2",
            1,
            "CPU 1 has next hops of its own for 198.19.100.0/24 already",
        ),
        ("del 198.19.100.0/24 cpu 0", 1, "CPU 0 has no next hops of its own for 198.19.100.0/24"),
        ("flush cpu 1", 2, "for all CPUs together"),
    ] {
        let refused = forwarder.call(&format!("route {command}")).unwrap();
        assert_eq!(refused.code(), code, "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains(message), "{command}: {}", refused.stderr);
        assert_eq!(forwarder.ok("route show --per-cpu").unwrap(), shown);
    }
}

//! The lab itself, before any forwarder is in it: Linux does the forwarding, and the oracle must
//! agree with it byte by byte.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use forwarder_tests::{
    daemon::{self, Daemon, Forwarder},
    frame::{ECHO_REPLY4, ECHO_REPLY6, Frame, Packet, Transport},
    host::Host,
    kernel::Forwarded,
    lab::{Lab, host_mac, host4, router_mac},
    link::{End, connect},
    netns::Namespace,
    process::{Finished, Process},
    require, skip,
    wait::wait_until,
};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(5);

/// A TCP segment behind that of the number before.
fn segment(frame: Frame, number: u8) -> Frame {
    let mut segment = frame.tcp(1, 2, 16).payload(&[number; 100]);
    if let Transport::Tcp { sequence, .. } = &mut segment.transport {
        *sequence = u32::from(number) * 100;
    }
    segment
}

fn any(_: &[u8]) -> bool {
    true
}

#[test]
fn what_linux_forwards_is_what_the_oracle_expects() {
    require!(skip::lab());
    let lab = Lab::router().static_neighbours().build().unwrap();
    let (a, b) = (lab.a().wire("eth0").unwrap(), lab.b().wire("eth0").unwrap());
    let frames = [Lab::frame4(0, 1), Lab::frame6(0, 1)].map(|frame| {
        [
            frame.clone().udp(1000, 2000).payload(b"a datagram"),
            frame.clone().udp(1000, 2000).payload(b"padded").padding(30),
            frame.clone().tcp(1000, 2000, 2).ttl(2),
            frame.clone().echo(7, 8).payload(b"odd"),
            frame.clone().udp(1000, 2000).fragment(0, true).payload(&[1; 16]),
            frame.udp(1000, 2000).fragment(3, false).payload(&[2; 16]),
        ]
    });
    for frame in frames.as_flattened() {
        a.send(&frame.bytes()).unwrap();
        let received = b.collect(1, SOON, any).unwrap();
        assert_eq!(received, [Lab::forwarded(frame, 1)], "{frame:?}");
    }
    let expected = Forwarded { v4: frames[0].len() as u64, v6: frames[1].len() as u64 };
    // B answers echo requests and what is sent to ports where nobody listens.
    let forwarded = Forwarded::of(&lab.router).unwrap();
    assert!(forwarded.v4 >= expected.v4 && forwarded.v6 >= expected.v6, "{forwarded:?}");
}

#[test]
fn every_frame_is_counted_and_none_comes_unasked() {
    require!(skip::lab());
    let lab = Lab::router().links(3).static_neighbours().build().unwrap();
    let (a, c) = (lab.a().wire("eth0").unwrap(), lab.hosts[2].wire("eth0").unwrap());
    let silent = lab.b().wire("eth0").unwrap();
    let before = Forwarded::of(&lab.router).unwrap();
    // To a protocol that nobody has, so that nobody answers but with an error, in IPv4 alone.
    let frames: Vec<_> = (0..500_u16)
        .map(|number| Lab::frame6(0, 2).raw(59).payload(&number.to_be_bytes()).bytes())
        .collect();
    let received = a.stream(&frames, &c, SOON, any).unwrap();
    let numbers: Vec<_> = received.iter().map(|frame| &frame[frame.len() - 2..]).collect();
    assert_eq!(numbers, frames.iter().map(|frame| &frame[frame.len() - 2..]).collect::<Vec<_>>());
    assert_eq!(Forwarded::of(&lab.router).unwrap().since(before), Forwarded { v4: 0, v6: 500 });
    assert_eq!(c.arrived(any).unwrap(), [[0; 0]; 0]);
    assert_eq!(silent.arrived(any).unwrap(), [[0; 0]; 0]);
}

#[test]
fn hosts_find_each_other_and_answer() {
    require!(skip::lab());
    let lab = Lab::router().ifindex(1, 1070).mtu(1, 1400).build().unwrap();
    assert!(lab.router.ip("link show eth1").unwrap().starts_with("1070: eth1@"));
    let a = lab.a().wire("eth0").unwrap();
    for (frame, reply) in [(Lab::frame4(0, 1), ECHO_REPLY4), (Lab::frame6(0, 1), ECHO_REPLY6)] {
        a.send(&frame.echo(7, 9).payload(b"hello").bytes()).unwrap();
        let answer = a
            .collect(1, SOON, |frame| {
                let packet = Packet::of_frame(frame).ok();
                packet.is_some_and(|packet| packet.icmp().is_some_and(|icmp| icmp.kind == reply))
            })
            .unwrap();
        let packet = Packet::of_frame(&answer[0]).unwrap();
        assert_eq!(packet.problems(), [""; 0]);
        assert_eq!((packet.source_mac, packet.destination_mac), (router_mac(0), host_mac(0)));
        assert_eq!((packet.ttl, packet.icmp().unwrap().word), (63, 7 << 16 | 9));
        assert!(packet.ends_with(b"hello"));
    }
}

#[test]
fn a_router_that_does_not_forward_does_not() {
    require!(skip::lab());
    let lab = Lab::router().forwarding(false).static_neighbours().build().unwrap();
    let (a, b) = (lab.a().wire("eth0").unwrap(), lab.b().wire("eth0").unwrap());
    for frame in [Lab::frame4(0, 1), Lab::frame6(0, 1)] {
        a.send(&frame.udp(1, 2).bytes()).unwrap();
    }
    // The router itself answers: by then it has seen what came before.
    let frame = Frame::ipv4(host4(0), [198, 18, 1, 1].into()).macs(host_mac(0), router_mac(0));
    a.send(&frame.echo(1, 1).bytes()).unwrap();
    a.collect(1, SOON, |frame| Packet::of_frame(frame).is_ok_and(|packet| packet.icmp().is_some()))
        .unwrap();
    assert_eq!(b.arrived(any).unwrap(), [[0; 0]; 0]);
    assert_eq!(Forwarded::of(&lab.router).unwrap(), Forwarded::default());
}

#[test]
fn a_wire_brings_frames_as_they_were_sent() {
    require!(skip::lab());
    let (one, other) = (Host::new("one").unwrap(), Host::new("other").unwrap());
    let end = |host| End::new(host, "eth0", host_mac(0)).mtu(9000).redirect_target();
    connect(&end(&one), &end(&other)).unwrap();
    let (near, far) = (one.wire("eth0").unwrap(), other.wire("eth0").unwrap());
    let plain = Frame::ipv4([1, 2, 3, 4].into(), [5, 6, 7, 8].into()).udp(1, 2);
    let frames = [
        plain.clone().vlan(5).bytes(),
        plain.clone().vlan(6).vlan(7).padding(3).bytes(),
        plain.clone().ip_length(9000).bytes(),
        plain.clone().v4(|ip| ip.checksum = Some(0xdead)).bytes(),
        [[0xff_u8; 12].as_slice(), &[0x12, 0x34, 0x56]].concat(),
        // Linux would like to merge these.
        segment(plain.clone(), 1).bytes(),
        segment(plain, 2).bytes(),
    ];
    assert_eq!(near.stream(&frames, &far, SOON, any).unwrap(), frames);
    assert_eq!(near.arrived(any).unwrap(), [[0; 0]; 0], "what was sent is not received");
}

#[test]
fn a_process_ends_with_the_thread_that_started_it() {
    require!(skip::lab());
    let pid = std::thread::spawn(|| {
        let mut command = Namespace::new().unwrap().command("sleep");
        command.arg("1000");
        let process = Process::spawn(command, Signal::SIGTERM).unwrap();
        let pid = process.pid();
        std::mem::forget(process);
        pid
    })
    .join()
    .unwrap();
    wait_until("the process to be dead", SOON, || Ok((!is_running(pid)).then_some(()))).unwrap();
}

/// The test below runs this in a process of its own, and kills it.
#[test]
#[ignore = "part of another test"]
fn lab_of_a_process_that_will_be_killed() {
    let Ok(namespace) = env::var("LAB_TEST_NAMESPACE") else { return };
    let lab = Lab::router().build().unwrap();
    let namespace = Namespace::open(namespace.as_ref()).unwrap();
    let witness = Host::inside("witness", namespace).unwrap();
    let end = |host, interface| End::new(host, interface, host_mac(9));
    connect(&end(&lab.router, "eth9"), &end(&witness, "eth0")).unwrap();
    let mut command = lab.router.command("sleep");
    command.arg("1000");
    let process = Process::spawn(command, Signal::SIGTERM).unwrap();
    println!("asleep: {}", process.pid());
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn nothing_is_left_of_a_lab_after_kill_9() {
    require!(skip::lab());
    let witness = Host::new("witness").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", "lab_of_a_process_that_will_be_killed"])
        .env("LAB_TEST_NAMESPACE", witness.namespace.path());
    let process = Process::spawn(command, Signal::SIGKILL).unwrap();
    let sleeper: u32 = wait_until("the lab", Duration::from_secs(20), || {
        let stdout = process.stdout();
        let line = stdout.lines().find_map(|line| line.split_once("asleep: "));
        Ok(line.map(|(_, pid)| pid.parse().unwrap()))
    })
    .unwrap();
    assert!(is_running(sleeper));
    assert!(witness.ip("link show eth0").is_ok());
    process.signal(Signal::SIGKILL).unwrap();
    wait_until("its child to be dead", SOON, || Ok((!is_running(sleeper)).then_some(()))).unwrap();
    // The link has an end in the killed one's router: it goes when that namespace goes.
    let gone = || Ok(witness.ip("link show eth0").is_err().then_some(()));
    wait_until("its namespaces to be gone", Duration::from_secs(20), gone).unwrap();
}

#[test]
fn a_daemon_can_be_started_asked_ended_and_started_again() {
    require!(skip::forwarder());
    let lab = Lab::router().forwarding(false).static_neighbours().build().unwrap();
    let (a, b) = (lab.a().wire("eth0").unwrap(), lab.b().wire("eth0").unwrap());
    let daemon = Daemon::start(&lab.router, "--iface eth0,eth1 --steer cpus=0").unwrap();
    daemon.ok("route add 198.18.2.0/24 via 198.18.2.2 dev eth1 --wait 3").unwrap();
    // Segments of one flow, which the receiving end would like to merge.
    let sent: Vec<_> = (0..200).map(|number| segment(Lab::frame4(0, 1), number)).collect();
    let bytes: Vec<_> = sent.iter().map(Frame::bytes).collect();
    let expected: Vec<_> = sent.iter().map(|frame| Lab::forwarded(frame, 1)).collect();
    let before = daemon.stats().unwrap();
    let received = a.stream(&bytes, &b, SOON, |frame| frame[12..14] == [8, 0]).unwrap();
    assert_eq!(received, expected);
    let stats = daemon.stats().unwrap().since(&before);
    let eth0 = stats.interface("eth0");
    assert_eq!((eth0.ingress().rx.packets, eth0.redirected()), (200, 200));
    let (ingress, worker) = (eth0.ingress(), eth0.worker());
    let redirected = ingress.redirected.bytes + worker.redirected.bytes;
    assert_eq!(redirected, 200 * bytes[0].len() as u64);
    assert!(ingress.closes() && worker.closes());
    assert_eq!(ingress.steered, worker.rx);

    let second = Forwarder::new(&lab.router).unwrap().call("run --iface eth0,eth1").unwrap();
    assert_eq!(second.code(), 1, "{}", second.stderr);
    let pid = daemon.pid();
    let (finished, forwarder) = daemon.stop(Signal::SIGKILL).unwrap();
    assert_eq!(finished.code(), 128 + 9);
    let daemon = forwarder.start("--iface eth0,eth1").unwrap();
    assert_ne!(daemon.pid(), pid);
    assert_eq!(daemon.stop(Signal::SIGTERM).unwrap().0.code(), 0);
}

#[test]
fn the_demo_proves_what_it_claims() {
    require!(skip::forwarder());
    let process = Process::spawn(demo(), Signal::SIGKILL).unwrap();
    let finished = process.finish(Duration::from_mins(1)).unwrap();
    assert_eq!(finished.code(), 0, "{}{}", finished.stdout, finished.stderr);
}

#[test]
fn nothing_is_left_of_the_demo_after_kill_9() {
    require!(skip::forwarder());
    let process = Process::spawn(demo(), Signal::SIGKILL).unwrap();
    wait_until("the demo to show routes", Duration::from_secs(30), || {
        Ok(process.stdout().contains("$ forwarder route show").then_some(()))
    })
    .unwrap();
    let pid = process.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let room = fs::read_link(format!("/proc/{}/ns/pid", children.trim())).unwrap();
    let room = room.to_str().unwrap();
    let programs: BTreeSet<_> = processes_in(room).iter().flat_map(|it| programs_of(it)).collect();
    assert!(!programs.is_empty() && programs.is_subset(&loaded_programs()), "{programs:?}");
    process.signal(Signal::SIGKILL).unwrap();
    let gone = || Ok(processes_in(room).is_empty().then_some(()));
    wait_until("the room to be empty", SOON, gone).unwrap();
    let unloaded = || Ok(programs.is_disjoint(&loaded_programs()).then_some(()));
    wait_until("its programs to be unloaded", SOON, unloaded).unwrap();
}

#[test]
fn the_shell_of_a_lab_sees_the_router_and_reaches_its_hosts() {
    require!(skip::lab());
    let script =
        "uname -n; ls /sys/class/net; cat /sys/class/net/eth0/address; ip -br link show eth1;
        forwarder-lab ping 2001:db8:2::2 -c 1; forwarder-lab on B ip -br address; exit 7";
    let process = Process::spawn(room("lab", &["bash", "-c", script]), Signal::SIGKILL).unwrap();
    let finished = process.finish(Duration::from_secs(20)).unwrap();
    let Finished { stdout, stderr, .. } = &finished;
    assert!(
        stdout.starts_with("router\neth0\neth1\nlo\n02:00:00:00:01:01\neth1@"),
        "{stdout}{stderr}"
    );
    assert!(stdout.contains("64 bytes from 2001:db8:2::2: seq=1 "), "{stdout}{stderr}");
    assert!(stdout.contains(" 198.18.2.2/24 2001:db8:2::2/64 "), "{stdout}{stderr}");
    assert_eq!(finished.code(), 7, "{stderr}");
}

#[test]
fn nothing_is_left_of_a_room_after_kill_9() {
    require!(skip::lab());
    let script = "sleep 1000 & readlink /proc/self/ns/pid; wait";
    let process = Process::spawn(room("lab", &["bash", "-c", script]), Signal::SIGKILL).unwrap();
    let namespace = wait_until("the room", Duration::from_secs(20), || {
        Ok(process.stdout().lines().next().map(String::from))
    })
    .unwrap();
    // The lab, a process on each of its three hosts, bash, and sleep.
    let all = || Ok((processes_in(&namespace).len() == 6).then_some(()));
    wait_until("all to be there", SOON, all).unwrap();
    process.signal(Signal::SIGKILL).unwrap();
    let gone = || Ok(processes_in(&namespace).is_empty().then_some(()));
    wait_until("the room to be empty", SOON, gone).unwrap();
}

/// The test below runs this.
#[test]
#[ignore = "part of another test"]
fn what_no_machine_has() {
    require!(skip::cpus(1_000_000));
    unreachable!("a million CPUs");
}

#[test]
fn a_test_that_cannot_run_says_so_and_fails_where_all_must() {
    let run = |require_all| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "what_no_machine_has"]);
        command.env(skip::REQUIRE_ALL, require_all);
        Process::spawn(command, Signal::SIGKILL).unwrap().finish(SOON).unwrap()
    };
    let skipped = run("0");
    assert!(skipped.status.success());
    assert!(skipped.stderr.starts_with("SKIP what_no_machine_has: needs 1000000 CPUs"));
    let failed = run("1");
    assert!(!failed.status.success());
    assert!(failed.stdout.contains("what_no_machine_has cannot run"), "{}", failed.stdout);
}

fn room(verb: &str, command: &[&str]) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_forwarder-lab"));
    lab.args([verb, "--forwarder", "/bin/true", "--"]).args(command);
    lab
}

fn demo() -> Command {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_forwarder-lab"));
    demo.arg("demo").arg("--forwarder").arg(daemon::binary());
    demo
}

/// Ids of the BPF programs that a process, a folder of /proc, holds.
fn programs_of(process: &Path) -> Vec<u32> {
    let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    let infos = descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
    let id = |info: String| {
        info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
    };
    infos.filter_map(id).collect()
}

fn loaded_programs() -> BTreeSet<u32> {
    aya::programs::loaded_programs().map(|program| program.unwrap().id()).collect()
}

/// Of a PID namespace, as /proc names it.
fn processes_in(namespace: &str) -> Vec<PathBuf> {
    let inside = |process: &PathBuf| {
        fs::read_link(process.join("ns/pid")).is_ok_and(|it| it.as_os_str() == namespace)
    };
    fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(inside).collect()
}

fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    // A zombie has ended, though nobody has asked.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

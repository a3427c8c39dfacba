//! Whole checks, in network namespaces of their own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Machine, Report, check, fixtures::config};
use crate::{config::Config, netlink::namespace::Namespace};

fn machine() -> Machine {
    Machine { namespaces: vec![], ..Machine::this() }
}

fn run(namespace: &Namespace, config: &Config, machine: &Machine) -> Result<Report, String> {
    namespace.run(|| async { check(config, machine, &[]).await.map_err(|error| error.to_string()) })
}

/// A namespace with a pair of veths, both ends in it.
fn pair() -> Option<Namespace> {
    let namespace = Namespace::new()?;
    namespace.sh("ip link add va type veth peer name vb\nip link set va up\nip link set vb up");
    Some(namespace)
}

fn accepting(names: &[&str]) -> Config {
    Config { accept_unfinished_checksums: true, ..config(names) }
}

#[test]
fn what_nothing_stands_against_is_reported() {
    let Some(namespace) = pair() else { return };
    namespace.sh("ip addr add 198.18.0.1/24 dev va
         ip route add default via 198.18.0.9
         ip link set vb alias x
         ip link property add dev vb altname second");
    let report = run(&namespace, &accepting(&["second", "va"]), &machine()).unwrap();
    let names: Vec<_> = report.interfaces.iter().map(|facts| facts.name().to_owned()).collect();
    assert_eq!(names, ["vb", "va"]);
    let va = &report.interfaces[1];
    assert_eq!(va.driver.as_deref(), Some("veth"));
    assert_eq!(va.peer.as_ref().unwrap().name, "vb");
    assert!(va.xdp.unwrap().redirect && va.queues.is_some() && va.offloads.is_some());
    assert!(!report.cpus.online.is_empty());
    let default = "this machine's default route leaves by va: its own traffic passes the forwarder";
    assert!(report.warnings.iter().any(|warning| warning == default), "{:?}", report.warnings);
}

#[test]
fn everything_that_stands_against_it_is_told_at_once() {
    let Some(namespace) = pair() else { return };
    namespace.sh("ip link add br0 type bridge
         ip link set va master br0
         ip link add link vb name mv type macvlan");
    let names = ["va", "br0", "mv", "lo", "eth7", "va"];
    let error = run(&namespace, &accepting(&names), &machine()).unwrap_err();
    let mut lines: Vec<_> = error.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "br0 is a bridge, and XDP has to run below it: name the interfaces that it lies upon \
             (va)",
            "interface va is named twice: name each one once",
            "lo is the loopback interface: name Ethernet interfaces",
            "mv is a macvlan, and XDP has to run below it: name the interfaces that it lies upon \
             (vb)",
            "there is no interface 'eth7' in this network namespace: there are vb, va, br0, mv",
            "va belongs to the bridge br0, which takes its frames: take it out with `ip link set \
             va nomaster`, or do not name it",
        ]
    );
}

#[test]
fn what_takes_the_frames_of_an_interface_is_found_upon_it() {
    let Some(namespace) = pair() else { return };
    let refused =
        |namespace: &Namespace| run(namespace, &accepting(&["va", "vb"]), &machine()).err();
    namespace.sh("ip link add link va name mv type macvlan mode bridge");
    assert_eq!(refused(&namespace), None);
    namespace.sh("ip link del mv; ip link add link va name mv type macvlan mode passthru");
    let expected = "the macvlan mv upon va takes frames that have va's address: remove it with `ip \
                    link del mv`, or do not name va";
    assert_eq!(refused(&namespace).as_deref(), Some(expected));
}

#[test]
fn a_veths_peer_is_found_wherever_it_is() {
    let (Some(namespace), Some(other)) = (Namespace::new(), Namespace::new()) else { return };
    namespace.sh(&format!("ip link add va type veth peer name vb netns {}", other.path()));
    let directory = tempfile::tempdir().unwrap();
    let message = |machine: &Machine| run(&namespace, &config(&["va"]), machine).unwrap_err();

    let unseen = message(&machine());
    assert!(
        unseen.starts_with(
            "va may get frames with unfinished checksums, and its peer cannot be seen"
        ),
        "{unseen}"
    );

    symlink(other.path(), directory.path().join("blue")).unwrap();
    let named = Machine { namespaces: vec![directory.path().into()], ..machine() };
    let expected = |place: &str| {
        format!(
            "va gets frames with unfinished checksums, which its peer vb leaves to hardware: switch \
         that off with `{place} ethtool -K vb tx off txvlan off gro on`"
        )
    };
    assert_eq!(message(&named), expected("ip netns exec blue"));

    // A process in it that has no name for it, as in a container.
    let mut process = other.spawn(Command::new("cat").stdin(Stdio::piped()));
    let pid = process.id();
    let found = message(&machine());
    drop(process.stdin.take());
    process.wait().unwrap();
    assert_eq!(found, expected(&format!("nsenter -t {pid} -n")));

    let local = pair().unwrap();
    let here = run(&local, &config(&["va"]), &machine()).unwrap_err();
    assert!(here.contains("`ethtool -K vb tx off txvlan off gro on`"), "{here}");
}

/// A procfs in which this process stems from a login by SSH.
fn proc_with_login(directory: &Path, connection: &str) -> PathBuf {
    let process = directory.join("self");
    fs::create_dir_all(&process).unwrap();
    for file in ["status", "uid_map"] {
        fs::copy(Path::new("/proc/self").join(file), process.join(file)).unwrap();
    }
    fs::write(process.join("environ"), format!("SSH_CONNECTION={connection}\0")).unwrap();
    directory.to_owned()
}

#[test]
fn an_interface_that_carries_this_login_needs_a_yes() {
    let Some(namespace) = pair() else { return };
    namespace.sh("ip addr add 198.18.0.1/24 dev va\nip route add 198.18.7.0/24 via 198.18.0.9");
    let refused = |client: &str| {
        Some(format!(
            "this login (SSH from {client}) comes in by va, and could be cut off: add --yes if you \
         have another way in"
        ))
    };
    let cases = [
        ("198.18.0.2 5 198.18.0.1 22", refused("198.18.0.2")),
        ("198.18.7.7 5 198.18.0.1 22", refused("198.18.7.7")),
        ("fe80::1%va 5 fe80::2%va 22", refused("fe80::1")),
        ("fe80::1%eth7 5 fe80::2%eth7 22", None),
        ("198.18.9.9 5 198.18.0.1 22", None),
    ];
    for (connection, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let proc = proc_with_login(directory.path(), connection);
        let machine = Machine { proc, ..machine() };
        let config = accepting(&["va", "vb"]);
        assert_eq!(run(&namespace, &config, &machine).err(), expected, "{connection}");
        let config = Config { yes: true, ..config };
        assert!(run(&namespace, &config, &machine).is_ok());
    }
}

#[test]
fn without_privileges_nothing_else_is_said() {
    let Some(namespace) = pair() else { return };
    let directory = tempfile::tempdir().unwrap();
    let process = directory.path().join("self");
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("status"), "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0\n").unwrap();
    let machine =
        Machine { proc: directory.path().into(), command: "forwarder run".into(), ..machine() };
    assert_eq!(
        run(&namespace, &config(&["eth7"]), &machine).unwrap_err(),
        "forwarder needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON: run it as root: sudo -- forwarder \
         run"
    );
}

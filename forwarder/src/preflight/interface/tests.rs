use super::*;
use crate::{
    netlink::{XdpAttachment, XdpMode},
    preflight::{
        fixtures::{config, details, nic, offloads, veth},
        peer::Place,
    },
};

fn with(mut facts: Facts, change: impl FnOnce(&mut Facts)) -> Facts {
    change(&mut facts);
    facts
}

fn messages(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_stands_against_an_interface() {
    let attached = |mode, program| XdpAttachment { mode, program };
    let checksums = "tx-checksum-ip-generic";
    let cases = [
        ("a NIC", nic(), ""),
        (
            "loopback",
            with(nic(), |facts| facts.details.loopback = true),
            "eth0 is the loopback interface: name Ethernet interfaces",
        ),
        (
            "a tunnel",
            with(nic(), |facts| facts.details.link.mac = None),
            "eth0 has no Ethernet address, and frames cannot be addressed to it: name Ethernet \
             interfaces",
        ),
        (
            "a bridge",
            with(nic(), |facts| {
                facts.details.link.kind = Some("bridge".into());
                facts.below = vec!["eth1".into(), "eth2".into()];
            }),
            "eth0 is a bridge, and XDP has to run below it: name the interfaces that it lies upon \
             (eth1, eth2)",
        ),
        (
            "a VLAN",
            with(nic(), |facts| facts.details.link.kind = Some("vlan".into())),
            "eth0 is a vlan, and XDP has to run below it: name the interfaces that it lies upon",
        ),
        (
            "what an ipvlan lies upon",
            with(nic(), |facts| facts.covers = vec![("ipvl0".into(), "ipvlan".into())]),
            "the ipvlan ipvl0 upon eth0 takes frames that have eth0's address: remove it with `ip \
             link del ipvl0`, or do not name eth0",
        ),
        (
            "a port of a bond",
            with(nic(), |facts| {
                facts.controller =
                    Some(Controller { name: "bond0".into(), kind: Some("bond".into()) });
            }),
            "eth0 belongs to the bond bond0, which takes its frames: take it out with `ip link set \
             eth0 nomaster`, or do not name it",
        ),
        (
            "a program of somebody else",
            with(nic(), |facts| facts.details.xdp = vec![attached(XdpMode::Native, 41)]),
            "eth0 has an XDP program already (id 41, native): remove it with `ip link set dev eth0 \
             xdp off`; if that is refused, something holds it: what a killed forwarder of another name has left (`ls /sys/fs/bpf/forwarder`) goes with `forwarder --name NAME unload`, else see `bpftool link`",
        ),
        (
            "two of them, and ours",
            with(nic(), |facts| {
                facts.details.xdp = vec![
                    attached(XdpMode::Native, 7),
                    attached(XdpMode::Generic, 42),
                    attached(XdpMode::Offloaded, 43),
                ];
            }),
            "eth0 has an XDP program already (id 42, generic; id 43, offloaded): remove it with \
             `ip link set dev eth0 xdpgeneric off && ip link set dev eth0 xdpoffload off`; if that \
             is refused, something holds it: what a killed forwarder of another name has left \
             (`ls /sys/fs/bpf/forwarder`) goes with `forwarder --name NAME unload`, else see \
             `bpftool link`",
        ),
        (
            "ours alone",
            with(nic(), |facts| facts.details.xdp = vec![attached(XdpMode::Native, 7)]),
            "",
        ),
        (
            "receive VLAN offload",
            with(nic(), |facts| {
                facts.offloads = Some(offloads(&["rx-vlan-hw-parse"], &["rx-vlan-hw-parse"]));
            }),
            "eth0's receive VLAN offload hides the tag of VLAN frames from XDP, which would \
             forward them without it: switch it off with `ethtool -K eth0 rxvlan off`",
        ),
        (
            "receive VLAN offload for good",
            with(nic(), |facts| facts.offloads = Some(offloads(&["rx-vlan-hw-parse"], &[]))),
            "",
        ),
        ("a veth in order", veth(Place::Here, &["highdma"]), ""),
        (
            "a veth's peer here",
            with(veth(Place::Here, &[checksums]), |facts| facts.xdp = None),
            "va gets frames with unfinished checksums, which its peer vb leaves to hardware: \
             switch that off with `ethtool -K vb tx off`",
        ),
        (
            "a veth's peer elsewhere, and all that it needs",
            veth(Place::Named("blue".into()), &[checksums, "tx-vlan-hw-insert"]),
            "va gets frames with unfinished checksums, which its peer vb leaves to hardware: \
             switch that off with `ip netns exec blue ethtool -K vb tx off txvlan off gro on`",
        ),
        (
            "a veth's peer out of sight",
            with(veth(Place::Here, &[]), |facts| facts.peer = None),
            "va may get frames with unfinished checksums, and its peer cannot be seen from here: \
             run `ethtool -K PEER tx off` in the peer's network namespace, then say so with \
             --accept-unfinished-checksums",
        ),
        (
            "a virtual machine's tap",
            with(nic(), |facts| {
                facts.details.link.kind = Some("tun".into());
                facts.details.tap_offload = true;
            }),
            "eth0 may get frames with unfinished checksums from the virtual machine behind it: run \
             `ethtool -K INTERFACE tx off` in there, then say so with \
             --accept-unfinished-checksums",
        ),
        (
            "a tap without offloads",
            with(nic(), |facts| facts.details.link.kind = Some("tun".into())),
            "",
        ),
    ];
    for (name, facts, expected) in cases {
        let found = messages(&check(&facts, &config(&[]), &[7]));
        assert_eq!(found.join("\n"), expected, "{name}");
    }
}

#[test]
fn unfinished_checksums_can_be_accepted() {
    let config = Config { accept_unfinished_checksums: true, ..config(&[]) };
    let unseen = with(veth(Place::Here, &[]), |facts| facts.peer = None);
    for facts in [unseen, veth(Place::Here, &["tx-checksum-ipv4"])] {
        assert!(!check(&facts, &self::config(&[]), &[]).is_empty());
        assert_eq!(messages(&check(&facts, &config, &[])), [""; 0]);
    }
}

#[test]
fn names() {
    let mut links = vec![details(1, "lo"), details(2, "eth0"), details(3, "eth1")];
    links[0].loopback = true;
    links[1].alternative_names = vec!["enp1s0".into()];
    let cases: [(&[&str], &[u32], &[&str]); 5] = [
        (&["eth1", "eth0"], &[3, 2], &[]),
        (&["enp1s0", "eth1"], &[2, 3], &[]),
        (
            &["eth0", "eth7"],
            &[2],
            &["there is no interface 'eth7' in this network namespace: there are eth0, eth1"],
        ),
        (&["eth0", "eth0"], &[2], &["interface eth0 is named twice: name each one once"]),
        (&["eth0", "enp1s0"], &[2], &["eth0 and enp1s0 are the same interface: name it once"]),
    ];
    for (names, expected, expected_problems) in cases {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let (selected, problems) = select(&names, &links);
        let selected: Vec<_> = selected.iter().map(|details| details.link.ifindex).collect();
        assert_eq!(selected, expected, "{names:?}");
        assert_eq!(messages(&problems), expected_problems, "{names:?}");
    }
    let (_, problems) = select(&["eth0".to_owned()], &links[..1]);
    assert_eq!(
        messages(&problems),
        ["there is no interface 'eth0' in this network namespace: there are none"]
    );
}

#[test]
fn what_is_warned_about() {
    let can_take = |facts: &mut Facts| {
        facts.xdp = facts.xdp.map(|xdp| XdpFeatures { ndo_xmit: true, ..xdp });
    };
    let cases: [(Facts, Mode, &str); 7] = [
        (nic(), Mode::Auto, ""),
        (
            with(nic(), |facts| facts.details.link.up = false),
            Mode::Auto,
            "eth0 is down: `ip link set eth0 up`",
        ),
        (
            with(nic(), |facts| facts.offloads = Some(offloads(&["rx-vlan-hw-parse"], &[]))),
            Mode::Auto,
            "eth0 hides the tags of VLAN frames from XDP, and its driver cannot switch that off: a \
             tagged frame would be forwarded without its tag",
        ),
        (
            veth(Place::Process(9), &[]),
            Mode::Native,
            "va takes no forwarded frames until its peer polls for them: `nsenter -t 9 -n ethtool \
             -K vb gro on`",
        ),
        (
            with(veth(Place::Here, &[]), |facts| facts.peer = None),
            Mode::Auto,
            "va takes no forwarded frames until its peer polls for them: `ethtool -K PEER gro on` \
             in the peer's network namespace",
        ),
        (veth(Place::Here, &[]), Mode::Generic, ""),
        (
            with(veth(Place::Here, &["tx-vlan-hw-insert"]), can_take),
            Mode::Auto,
            "a VLAN frame that vb sends to va would be forwarded without its tag: `ethtool -K vb \
             txvlan off` prevents that",
        ),
    ];
    for (facts, mode, expected) in cases {
        assert_eq!(warnings(&facts, mode).join("\n"), expected);
    }
}

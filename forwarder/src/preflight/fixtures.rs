//! Interfaces for tests.

use super::{
    interface::Facts,
    peer::{Peer, Place},
};
use crate::{
    config::{Config, Mode, RouteSource, Steering},
    netlink::{LinkDetails, Offloads, Queues, XdpFeatures, event::Link},
};

pub(super) fn config(names: &[&str]) -> Config {
    Config {
        interfaces: names.iter().map(|&name| name.to_owned()).collect(),
        mode: Mode::Auto,
        routes: RouteSource::Kernel,
        steering: Steering::Off,
        queue_size: 512,
        name: None,
        metrics: None,
        metrics_routes: 0,
        routes4_max: 1,
        routes6_max: 1,
        yes: false,
        accept_unfinished_checksums: false,
        bypass: std::collections::BTreeSet::new(),
        grace_s: 60,
        run_dir: "/run/forwarder".into(),
        group: "forwarder".into(),
    }
}

pub(super) fn details(ifindex: u32, name: &str) -> LinkDetails {
    LinkDetails {
        link: Link {
            ifindex,
            name: name.into(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            up: true,
            carrier: true,
            controller: None,
            kind: None,
            xdp_programs: vec![],
        },
        loopback: false,
        lower: None,
        lower_namespace: None,
        alternative_names: vec![],
        device: None,
        tap_offload: false,
        takes_below: false,
        xdp: vec![],
    }
}

pub(super) fn offloads(active: &[&str], changeable: &[&str]) -> Offloads {
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Offloads { active: set(active), changeable: set(changeable) }
}

/// A NIC that nothing stands against.
pub(super) fn nic() -> Facts {
    Facts {
        details: details(2, "eth0"),
        controller: None,
        below: vec![],
        covers: vec![],
        driver: Some("ixgbe".into()),
        offloads: Some(offloads(&["tx-checksum-ip-generic"], &["rx-vlan-hw-parse"])),
        queues: Some(Queues { rx: 0, tx: 0, combined: 8 }),
        xdp: Some(XdpFeatures { redirect: true, ndo_xmit: false, rx_sg: true, ndo_xmit_sg: true }),
        peer: None,
    }
}

/// A veth whose peer has these offloads.
pub(super) fn veth(place: Place, active: &[&str]) -> Facts {
    let mut facts = nic();
    facts.details.link.name = "va".into();
    facts.details.link.kind = Some("veth".into());
    facts.driver = Some("veth".into());
    facts.queues = Some(Queues { rx: 1, tx: 1, combined: 0 });
    let offloads = offloads(active, &[]);
    facts.peer = Some(Peer { name: "vb".into(), place, mtu: 1500, offloads });
    facts
}

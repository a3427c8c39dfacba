//! What is known of one interface, and the rules for it.

use std::fs;

use super::{Machine, find, peer::Peer, problem::Problem};
use crate::{
    config::{Config, Mode},
    netlink::{Generic, LinkDetails, Offloads, Queues, RequestError, Requests, XdpFeatures},
};

/// Kinds of links that lie upon others: XDP belongs on those.
const STACKED: [&str; 17] = [
    "bareudp",
    "bond",
    "bridge",
    "dsa",
    "geneve",
    "gretap",
    "hsr",
    "ip6gretap",
    "ipvlan",
    "ipvtap",
    "macsec",
    "macvlan",
    "macvtap",
    "team",
    "vlan",
    "vrf",
    "vxlan",
];

/// The bridge, bond or team that an interface is a port of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub name: String,
    pub kind: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub details: LinkDetails,
    pub controller: Option<Controller>,
    /// Names of the interfaces that it lies upon.
    pub below: Vec<String>,
    /// Names and kinds of interfaces upon it that take frames with its MAC address.
    pub covers: Vec<(String, String)>,
    /// "ixgbe", or the kind of a virtual interface.
    pub driver: Option<String>,
    pub offloads: Option<Offloads>,
    pub queues: Option<Queues>,
    pub xdp: Option<XdpFeatures>,
    /// Of a veth, where it can be seen.
    pub peer: Option<Peer>,
}

impl Facts {
    pub(super) async fn read(
        details: LinkDetails,
        links: &[LinkDetails],
        machine: &Machine,
        requests: &Requests,
        generic: &Generic,
    ) -> Result<Self, RequestError> {
        let ifindex = details.link.ifindex;
        let controller = details.link.controller.map(|ifindex| match find(links, ifindex) {
            Some(LinkDetails { link, .. }) => {
                Controller { name: link.name.clone(), kind: link.kind.clone() }
            }
            None => Controller { name: format!("interface {ifindex}"), kind: None },
        });
        let peer = match details.link.kind.as_deref() {
            Some("veth") => Peer::read(&details, links, machine, requests, generic).await?,
            _ => None,
        };
        Ok(Self {
            controller,
            below: below(&details, links),
            covers: covers(&details, links),
            driver: driver(&details, machine),
            offloads: generic.offloads(ifindex).await?,
            queues: generic.queues(ifindex).await?,
            xdp: generic.xdp_features(ifindex).await?,
            peer,
            details,
        })
    }

    pub fn ifindex(&self) -> u32 {
        self.details.link.ifindex
    }

    pub fn name(&self) -> &str {
        &self.details.link.name
    }
}

/// A bridge's ports, a VLAN's parent.
fn below(details: &LinkDetails, links: &[LinkDetails]) -> Vec<String> {
    let is_below = |other: &&LinkDetails| {
        let parent = details.lower == Some(other.link.ifindex) && details.lower_namespace.is_none();
        parent || other.link.controller == Some(details.link.ifindex)
    };
    links.iter().filter(is_below).map(|other| other.link.name.clone()).collect()
}

/// Of those that are in this network namespace: others cannot be seen.
fn covers(details: &LinkDetails, links: &[LinkDetails]) -> Vec<(String, String)> {
    let takes = links.iter().filter(|other| {
        other.takes_below
            && other.lower == Some(details.link.ifindex)
            && other.lower_namespace.is_none()
    });
    let named =
        takes.map(|other| (other.link.name.clone(), other.link.kind.clone().unwrap_or_default()));
    named.collect()
}

/// By the device's own path: /sys/class/net shows the namespace in which sysfs was mounted.
fn driver(details: &LinkDetails, machine: &Machine) -> Option<String> {
    let Some((bus, device)) = &details.device else { return details.link.kind.clone() };
    let device = machine.sys.join("bus").join(bus).join("devices").join(device);
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The links with these names, and what is wrong with the names.
pub(super) fn select(names: &[String], links: &[LinkDetails]) -> (Vec<LinkDetails>, Vec<Problem>) {
    let (mut selected, mut problems) = (Vec::<(&String, LinkDetails)>::new(), Vec::new());
    for name in names {
        let has_name = |details: &&LinkDetails| {
            details.link.name == *name || details.alternative_names.contains(name)
        };
        let Some(details) = links.iter().find(has_name) else {
            let known = links.iter().filter(|details| !details.loopback);
            let known: Vec<_> = known.map(|details| details.link.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            problems.push(Problem::NoSuchInterface { name: name.clone(), known });
            continue;
        };
        match selected.iter().find(|(_, other)| other.link.ifindex == details.link.ifindex) {
            None => selected.push((name, details.clone())),
            Some((other, _)) if *other == name => problems.push(Problem::NamedTwice(name.clone())),
            Some((other, _)) => {
                let (one, other) = ((*other).clone(), name.clone());
                problems.push(Problem::SameInterface { one, other });
            }
        }
    }
    (selected.into_iter().map(|(_, details)| details).collect(), problems)
}

/// What stands against forwarding on this interface.
pub(super) fn check(facts: &Facts, config: &Config, own_programs: &[u32]) -> Vec<Problem> {
    let name = facts.name().to_owned();
    let LinkDetails { link, loopback, .. } = &facts.details;
    // One of these says all that there is to say.
    if *loopback {
        return vec![Problem::Loopback(name)];
    }
    if let Some(kind) = link.kind.as_ref().filter(|kind| STACKED.contains(&kind.as_str())) {
        let (kind, below) = (kind.clone(), facts.below.clone());
        return vec![Problem::Stacked { name, kind, below }];
    }
    if link.mac.is_none() {
        return vec![Problem::NotEthernet(name)];
    }

    let mut problems = Vec::new();
    if let Some(Controller { name: controller, kind }) = &facts.controller {
        let controller = match kind {
            Some(kind) => format!("the {kind} {controller}"),
            None => controller.clone(),
        };
        problems.push(Problem::Enslaved { name: name.clone(), controller });
    }
    for (above, kind) in &facts.covers {
        let (name, above, kind) = (name.clone(), above.clone(), kind.clone());
        problems.push(Problem::Covered { name, above, kind });
    }
    let foreign = facts.details.xdp.iter().filter(|one| !own_programs.contains(&one.program));
    let attached: Vec<_> = foreign.copied().collect();
    if !attached.is_empty() {
        problems.push(Problem::ForeignProgram { name: name.clone(), attached });
    }
    if vlan_offload(facts) == VlanOffload::On {
        problems.push(Problem::VlanOffload { name: name.clone() });
    }
    if !config.accept_unfinished_checksums {
        problems.extend(check_checksums(facts, config.mode));
    }
    problems
}

/// Checksums that a sender on this machine leaves to hardware are never finished when no hardware
/// sends the frame, and XDP cannot see that.
fn check_checksums(facts: &Facts, mode: Mode) -> Option<Problem> {
    let name = facts.name().to_owned();
    match (facts.details.link.kind.as_deref(), &facts.peer) {
        (Some("veth"), None) => Some(Problem::UnseenPeer { name }),
        (Some("veth"), Some(peer)) => {
            let leaves_them = peer.offloads.active.iter().any(|name| is_checksum_offload(name));
            // All that the peer needs, in one line.
            let mut settings = vec!["tx off"];
            if vlan_offload(facts) == VlanOffload::Peer {
                settings.push("txvlan off");
            }
            if takes_no_frames(facts, mode) {
                settings.push("gro on");
            }
            leaves_them.then(|| Problem::PeerChecksums {
                name,
                peer: peer.name.clone(),
                command: peer.ethtool(&settings.join(" ")),
            })
        }
        (Some("tun"), _) if facts.details.tap_offload => Some(Problem::TapChecksums { name }),
        _ => None,
    }
}

/// "tx-checksum-ip-generic", "tx-checksum-ipv4", …
fn is_checksum_offload(name: &str) -> bool {
    name.starts_with("tx-checksum-")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VlanOffload {
    Off,
    On,
    /// On, and cannot be switched off.
    Fixed,
    /// Frames carry what the peer put beside them.
    Peer,
}

fn vlan_offload(facts: &Facts) -> VlanOffload {
    const RECEIVE: &str = "rx-vlan-hw-parse";
    const TRANSMIT: &str = "tx-vlan-hw-insert";
    let has = |offloads: &Offloads, name: &str| offloads.active.contains(name);
    if facts.details.link.kind.as_deref() == Some("veth") {
        let inserts = facts.peer.as_ref().is_some_and(|peer| has(&peer.offloads, TRANSMIT));
        return if inserts { VlanOffload::Peer } else { VlanOffload::Off };
    }
    match &facts.offloads {
        Some(offloads) if !has(offloads, RECEIVE) => VlanOffload::Off,
        Some(offloads) if offloads.changeable.contains(RECEIVE) => VlanOffload::On,
        Some(_) => VlanOffload::Fixed,
        None => VlanOffload::Off,
    }
}

/// What does not stand against forwarding, but should be known. `mode` is that of the attachment.
pub fn warnings(facts: &Facts, mode: Mode) -> Vec<String> {
    let name = facts.name();
    let mut warnings = Vec::new();
    if !facts.details.link.up {
        warnings.push(format!("{name} is down: `ip link set {name} up`"));
    }
    let untagged = "would be forwarded without its tag";
    match (vlan_offload(facts), &facts.peer) {
        (VlanOffload::Fixed, _) => warnings.push(format!(
            "{name} hides the tags of VLAN frames from XDP, and its driver cannot switch that off: \
             a tagged frame {untagged}"
        )),
        (VlanOffload::Peer, Some(peer)) => warnings.push(format!(
            "a VLAN frame that {} sends to {name} {untagged}: `{}` prevents that",
            peer.name,
            peer.ethtool("txvlan off")
        )),
        _ => {}
    }
    if takes_no_frames(facts, mode) {
        let command = match &facts.peer {
            Some(peer) => format!("`{}`", peer.ethtool("gro on")),
            None => "`ethtool -K PEER gro on` in the peer's network namespace".to_owned(),
        };
        warnings.push(format!(
            "{name} takes no forwarded frames until its peer polls for them: {command}"
        ));
    }
    warnings
}

/// A veth drops what is redirected to it natively, unless its peer has NAPI: by GRO or a program.
fn takes_no_frames(facts: &Facts, mode: Mode) -> bool {
    mode != Mode::Generic
        && facts.details.link.kind.as_deref() == Some("veth")
        && facts.xdp.is_some_and(|features| !features.ndo_xmit)
}

#[cfg(test)]
mod tests;

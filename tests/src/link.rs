//! Links between hosts: veth pairs whose two ends are born inside namespaces. Nothing ever appears
//! in the machine's own network.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    frame::{Mac, mac_text},
    host::Host,
    offload::Offload,
    wait::wait_until,
};

/// One end of a link.
#[derive(Clone, Debug)]
pub struct End<'a> {
    host: &'a Host,
    interface: &'a str,
    mac: Mac,
    mtu: u32,
    ifindex: Option<u32>,
    addresses: Vec<String>,
    redirect_target: bool,
}

impl<'a> End<'a> {
    pub fn new(host: &'a Host, interface: &'a str, mac: Mac) -> Self {
        Self {
            host,
            interface,
            mac,
            mtu: 1500,
            ifindex: None,
            addresses: Vec::new(),
            redirect_target: false,
        }
    }

    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    pub fn ifindex(mut self, ifindex: Option<u32>) -> Self {
        self.ifindex = ifindex;
        self
    }

    /// With its prefix length: `198.18.1.2/24`.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Frames will be redirected by XDP into the *other* end, to come out here. A veth takes them
    /// only while NAPI runs on its peer: with an XDP program there or, as done here, GRO.
    /// Without, all are lost, which only the tracepoint `xdp_redirect_err` tells.
    pub fn redirect_target(mut self) -> Self {
        self.redirect_target = true;
        self
    }

    fn link(&self) -> String {
        let Self { interface, mac, mtu, .. } = self;
        let index = self.ifindex.map_or_else(String::new, |index| format!("index {index}"));
        format!("name {interface} address {} mtu {mtu} {index}", mac_text(*mac))
    }

    fn up(&self) -> Result<()> {
        let Self { host, interface, .. } = self;
        for address in &self.addresses {
            host.ip(&format!("address add {address} dev {interface}"))?;
        }
        host.ip(&format!("link set {interface} up"))
            .map(drop)
            .context("is another interface of this name or index there?")
    }

    /// Once both ends are up: NAPI starts only then.
    fn settle(&self) -> Result<()> {
        let Self { host, interface, .. } = self;
        // veth leaves the checksums of what the host's own stack sends unfinished, and VLAN tags
        // beside the frame: neither is what a wire would carry, and XDP sees neither.
        host.offload(interface, Offload::TxChecksum, false)?;
        host.offload(interface, Offload::TxVlan, false)?;
        if self.redirect_target {
            host.offload(interface, Offload::Gro, true)?;
            // … but it is not to merge TCP segments: frames are counted. Where iproute2 is too old
            // to know how to say that (before 6.0), segments of one flow may arrive merged.
            let _ = host.ip(&format!("link set dev {interface} gro_max_size 1"));
        }
        let what = format!("{interface} on {} to be up", host.name);
        wait_until(&what, Duration::from_secs(10), || {
            let link = host.ip(&format!("-br link show dev {interface}"))?;
            // Until then IPv6 has not yet joined the multicast groups of its addresses.
            let tentative = host.ip(&format!("-6 address show dev {interface} tentative"))?;
            let up = link.split_whitespace().nth(1) == Some("UP");
            Ok((up && tentative.is_empty()).then_some(()))
        })
    }
}

/// Lays a link between two ends, and waits until it carries.
pub fn connect(one: &End<'_>, other: &End<'_>) -> Result<()> {
    let peer = other.host.namespace.path();
    let (link, other_link) = (one.link(), other.link());
    one.host
        .ip(&format!("link add {link} type veth peer {other_link} netns {}", peer.display()))?;
    one.up()?;
    other.up()?;
    one.settle()?;
    other.settle()
}

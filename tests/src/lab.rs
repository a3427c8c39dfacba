//! The usual lab: a router, and a host at each of its links.
//!
//! ```text
//! host A  eth0 198.18.1.2 ── 198.18.1.1 eth0  router  eth1 198.18.2.1 ── 198.18.2.2 eth0  host B
//!         2001:db8:1::2      2001:db8:1::1                 2001:db8:2::1    2001:db8:2::2
//!         fe80::2            fe80::1                       fe80::1          fe80::2
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use crate::{
    frame::{Frame, Mac, mac_text},
    host::Host,
    link::{End, connect},
};

/// A router with the links `eth0`, `eth1`, …, at each a host whose one interface is `eth0`.
#[derive(Clone, Debug)]
pub struct Lab {
    pub router: Host,
    /// By link. The first two are also [`Lab::a`] and [`Lab::b`].
    pub hosts: Vec<Host>,
}

/// What is to be built.
#[derive(Clone, Debug)]
pub struct Layout {
    links: Vec<Link>,
    forwarding: bool,
    static_neighbours: bool,
}

#[derive(Clone, Debug)]
struct Link {
    mtu: u32,
    ifindex: Option<u32>,
}

impl Lab {
    /// A router that Linux forwards on, and two links.
    pub fn router() -> Layout {
        Layout { links: Vec::new(), forwarding: true, static_neighbours: false }.links(2)
    }

    pub fn a(&self) -> &Host {
        &self.hosts[0]
    }

    pub fn b(&self) -> &Host {
        &self.hosts[1]
    }

    /// An Ethernet and IPv4 header as the host at link `from` sends them to the one at link `to`.
    pub fn frame4(from: u8, to: u8) -> Frame {
        Frame::ipv4(host4(from), host4(to)).macs(host_mac(from), router_mac(from))
    }

    /// Likewise with IPv6.
    pub fn frame6(from: u8, to: u8) -> Frame {
        Frame::ipv6(host6(from), host6(to)).macs(host_mac(from), router_mac(from))
    }

    /// What the host at link `to` must receive when the router has forwarded this frame there.
    pub fn forwarded(frame: &Frame, to: u8) -> Vec<u8> {
        frame.forwarded(router_mac(to), host_mac(to))
    }
}

impl Layout {
    /// How many links; those that are there keep their settings.
    pub fn links(mut self, count: usize) -> Self {
        self.links.resize(count, Link { mtu: 1500, ifindex: None });
        self
    }

    /// Whether Linux forwards IPv4 and IPv6 on the router.
    pub fn forwarding(mut self, on: bool) -> Self {
        self.forwarding = on;
        self
    }

    /// The MTU of both ends of a link.
    pub fn mtu(mut self, link: u8, mtu: u32) -> Self {
        self.links[usize::from(link)].mtu = mtu;
        self
    }

    /// The interface index of the router's end.
    pub fn ifindex(mut self, link: u8, ifindex: u32) -> Self {
        self.links[usize::from(link)].ifindex = Some(ifindex);
        self
    }

    /// Everybody knows the MAC addresses of everybody: no ARP, no neighbour discovery.
    pub fn static_neighbours(mut self) -> Self {
        self.static_neighbours = true;
        self
    }

    pub fn build(&self) -> Result<Lab> {
        let router = Host::new("router")?;
        let mut hosts = Vec::new();
        for (number, link) in (0..).zip(&self.links) {
            let host = Host::new(&host_name(number))?;
            let port = format!("eth{number}");
            let router_end = End::new(&router, &port, router_mac(number))
                .mtu(link.mtu)
                .ifindex(link.ifindex)
                .address(format!("{}/24", router4(number)))
                .address(format!("{}/64", router6(number)))
                .address("fe80::1/64");
            let host_end = End::new(&host, "eth0", host_mac(number))
                .mtu(link.mtu)
                .address(format!("{}/24", host4(number)))
                .address(format!("{}/64", host6(number)))
                .address("fe80::2/64")
                .redirect_target();
            connect(&router_end, &host_end)?;
            host.ip(&format!("route add default via {}", router4(number)))?;
            host.ip(&format!("route add default via {}", router6(number)))?;
            if self.static_neighbours {
                introduce(&host, "eth0", router4(number), router6(number), router_mac(number))?;
                introduce(&router, &port, host4(number), host6(number), host_mac(number))?;
            }
            hosts.push(host);
        }
        let forwarding = if self.forwarding { "1" } else { "0" };
        router.sysctl("ipv4/ip_forward", forwarding)?;
        router.sysctl("ipv6/conf/all/forwarding", forwarding)?;
        Ok(Lab { router, hosts })
    }
}

/// The address of the host at a link.
pub fn host4(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, link + 1, 2)
}

pub fn host6(link: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, u16::from(link) + 1, 0, 0, 0, 0, 2)
}

/// The router's address at a link.
pub fn router4(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, link + 1, 1)
}

pub fn router6(link: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, u16::from(link) + 1, 0, 0, 0, 0, 1)
}

pub fn host_mac(link: u8) -> Mac {
    [2, 0, 0, 0, link + 1, 2]
}

pub fn router_mac(link: u8) -> Mac {
    [2, 0, 0, 0, link + 1, 1]
}

/// A, B, C, …
fn host_name(link: u8) -> String {
    char::from(b'A' + link).to_string()
}

fn introduce(host: &Host, interface: &str, v4: Ipv4Addr, v6: Ipv6Addr, mac: Mac) -> Result<()> {
    let mac = mac_text(mac);
    for address in [v4.to_string(), v6.to_string()] {
        let neighbour = format!("{address} lladdr {mac} dev {interface} nud permanent");
        host.ip(&format!("neigh replace {neighbour}"))?;
    }
    Ok(())
}

//! A lab with routing daemons in it: the forwarder on its router, or Linux alone.

use forwarder_tests::{
    frame::Frame,
    host::Host,
    lab::{Lab, Layout, host6},
    testbed::{Counted, SOON, Testbed, is_traffic},
    wait::wait_until,
    wire::Wire,
};
use serde_json::Value;

/// Behind B and C both, if their daemons say so.
pub(crate) const FAR4: &str = "198.19.2.0/24";
pub(crate) const FAR6: &str = "2001:db8:102::/48";
/// By which the router reaches B and C.
pub(crate) const BOTH: [u8; 2] = [1, 2];

pub(crate) enum Site {
    Forwarder(Box<Testbed>),
    Linux { wires: Vec<Wire>, lab: Lab },
}

impl Site {
    pub(crate) fn with_forwarder() -> Self {
        let testbed = Testbed::on(lab(), "--iface eth0,eth1,eth2 --routes kernel").unwrap();
        Self::Forwarder(Box::new(testbed))
    }

    pub(crate) fn linux_alone() -> Self {
        let lab = lab();
        let wires = lab.hosts.iter().map(|host| host.wire("eth0").unwrap()).collect();
        Self::Linux { wires, lab }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Forwarder(_) => "with forwarder",
            Self::Linux { .. } => "Linux alone",
        }
    }

    pub(crate) fn lab(&self) -> &Lab {
        match self {
            Self::Forwarder(testbed) => &testbed.lab,
            Self::Linux { lab, .. } => lab,
        }
    }

    pub(crate) fn wires(&self) -> &[Wire] {
        match self {
            Self::Forwarder(testbed) => &testbed.wires,
            Self::Linux { wires, .. } => wires,
        }
    }

    pub(crate) fn forwarder(&self) -> Option<&Testbed> {
        match self {
            Self::Forwarder(testbed) => Some(testbed),
            Self::Linux { .. } => None,
        }
    }

    /// Waits until Linux's routes to both far networks lead by these links and, where it is there,
    /// the forwarder's do too, and all can be used.
    pub(crate) fn wait_for_far(&self, links: &[u8]) {
        for prefix in [FAR4, FAR6] {
            self.wait_for(prefix, links);
        }
    }

    /// Likewise of one prefix; without any link: until there is no route.
    pub(crate) fn wait_for(&self, prefix: &str, links: &[u8]) {
        let devices: Vec<_> = links.iter().map(|link| format!("eth{link}")).collect();
        let mut linux = Value::Null;
        let mut ours = Value::Null;
        let waited = wait_until("routes", SOON, || {
            linux = linux_routes(&self.lab().router, prefix);
            if usable(&linux) != devices {
                return Ok(None);
            }
            let Some(testbed) = self.forwarder() else { return Ok(Some(())) };
            ours = testbed.daemon.forwarder().json(&format!("route show exact {prefix}"))?;
            Ok((usable(&ours) == devices).then_some(()))
        });
        assert!(waited.is_ok(), "{prefix} by {devices:?}: Linux {linux:#}\nforwarder {ours:#}");
    }

    /// By which links Linux's table leads to a prefix.
    pub(crate) fn links(&self, prefix: &str) -> Vec<u8> {
        let devices = usable(&linux_routes(&self.lab().router, prefix));
        let link = |device: &String| device.strip_prefix("eth")?.parse().ok();
        devices.iter().filter_map(link).collect()
    }
}

/// A at link 0, B and C at links 1 and 2, all of whose addresses are known.
fn layout() -> Layout {
    Lab::router().links(3).static_neighbours()
}

fn lab() -> Lab {
    let lab = layout().build().unwrap();
    own_link_local_addresses(&lab);
    // The flows differ by their ports alone.
    for family in ["ipv4", "ipv6"] {
        lab.router.sysctl(&format!("{family}/fib_multipath_hash_policy"), "1").unwrap();
    }
    lab
}

/// The lab's hosts all have the same. FRR takes next hops for one if their addresses are equal,
/// whatever their interfaces.
fn own_link_local_addresses(lab: &Lab) {
    for (link, host) in (0..).zip(&lab.hosts) {
        host.ip("address del fe80::2/64 dev eth0").unwrap();
        host.ip(&format!("address add {}/64 dev eth0", link_local(link))).unwrap();
    }
}

fn link_local(link: u8) -> String {
    format!("fe80::{link}:2")
}

/// What `ip route` tells of a prefix.
pub(crate) fn linux_routes(router: &Host, prefix: &str) -> Value {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    let text = router.ip(&format!("{family} -j -d route show {prefix}")).unwrap();
    // Of no route iproute2 prints an empty list, or nothing at all.
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// The interfaces of the first route's next hops that can be used, in their order, as `ip route`
/// and `route show` both tell.
fn usable(routes: &Value) -> Vec<String> {
    let route = &routes[0];
    let several =
        route["nexthops"].as_array().map_or_else(|| vec![route], |it| it.iter().collect());
    let is_usable = |hop: &&Value| {
        let flags = hop["flags"].as_array().into_iter().flatten();
        // Linux goes on sending by a next hop whose link is down, until somebody takes it away.
        let is_dead = flags.into_iter().any(|it| it == "dead");
        let state = hop.get("state").and_then(Value::as_str);
        !is_dead && state.is_none_or(|state| state == "forwarding")
    };
    let devices = several.into_iter().filter(is_usable).filter_map(|hop| hop["dev"].as_str());
    let mut devices: Vec<_> = devices.map(str::to_owned).collect();
    devices.sort();
    devices
}

/// XDP alone forwards many flows from A to there, all of them, and each link has a fair share.
pub(crate) fn carries(testbed: &Testbed, frames: &[Frame], links: &[u8]) {
    let scatter = || testbed.scatter(0, links, frames);
    let (taken, Counted { xdp, linux }) = testbed.counted(scatter).unwrap();
    let sent = u64::try_from(frames.len()).unwrap();
    let port = xdp.interface("eth0");
    assert_eq!((port.redirected(), linux.v4 + linux.v6), (sent, 0), "{port:#?}");
    for link in links {
        let share = taken.iter().map(|it| usize::from(it == link)).sum::<usize>();
        let fair = frames.len() / links.len();
        assert!(share >= fair / 2, "eth{link}: {share} of {sent}");
    }
    for wire in testbed.wires.iter().skip(1) {
        assert_eq!(wire.arrived(is_traffic).unwrap(), Vec::<Vec<u8>>::new());
    }
}

/// As [`carries`], to both far networks.
pub(crate) fn carries_far(testbed: &Testbed, links: &[u8]) {
    for far in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
        carries(testbed, &flows(&far), links);
    }
}

/// Two hundred flows that differ in their source port.
pub(crate) fn flows(frame: &Frame) -> Vec<Frame> {
    (0..200).map(|port| frame.clone().udp(1024 + port, 9)).collect()
}

/// Ends a link at its far end: the router's loses its carrier.
pub(crate) fn cut(lab: &Lab, link: u8) {
    lab.hosts[usize::from(link)].ip("link set eth0 down").unwrap();
}

/// Mends it. What Linux has forgotten of the host comes back first: BIRD looks for a link-local
/// address when a link comes up, and not again.
pub(crate) fn mend(lab: &Lab, link: u8) {
    let host = &lab.hosts[usize::from(link)];
    for address in [format!("{}/64", host6(link)), format!("{}/64", link_local(link))] {
        host.ip(&format!("address replace {address} dev eth0")).unwrap();
    }
    host.ip("link set eth0 up").unwrap();
}

//! What the kernel told us, in our own words.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::prefix::{Family, Prefix};

mod route;

pub use self::route::{KernelRoute, Next, Nexthop, NexthopWay, Position, Rule, Skip};

/// One change, or one complete list. A list replaces all that was known of its kind: it comes at
/// the start and whenever notifications were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Links(Vec<Link>),
    Link(Link),
    LinkGone {
        ifindex: u32,
    },
    Addresses(Vec<Address>),
    Address(Address),
    AddressGone(Address),
    /// Prefixes of the local table: own addresses, broadcast and anycast addresses.
    Locals(Vec<Prefix>),
    Local(Prefix),
    LocalGone(Prefix),
    Neighbours(Vec<Neighbour>),
    Neighbour(Neighbour),
    NeighbourGone {
        ifindex: u32,
        address: IpAddr,
    },
    /// All routes of a family in the main table begin to be told again.
    RoutesBegin(Family),
    /// Some of them: those of one prefix come one after the other, in Linux's order.
    Routes(Vec<(Prefix, KernelRoute)>),
    /// They have all been told: what was not is gone.
    RoutesEnd(Family),
    Route {
        prefix: Prefix,
        route: KernelRoute,
        position: Position,
    },
    RouteGone {
        prefix: Prefix,
        route: KernelRoute,
    },
    Nexthops(Vec<Nexthop>),
    Nexthop(Nexthop),
    NexthopGone {
        id: u32,
    },
    /// Policy rules that are not those which every machine has.
    Rules(Vec<Rule>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub ifindex: u32,
    pub name: String,
    /// `None` where the link has no Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Set up by the administrator.
    pub up: bool,
    pub carrier: bool,
    /// Interface index of the bridge, bond, … that it is enslaved to.
    pub controller: Option<u32>,
    /// "veth", "bridge", …; `None` for plain devices.
    pub kind: Option<String>,
    /// Ids of attached XDP programs, of any mode.
    pub xdp_programs: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    pub ifindex: u32,
    /// The address with the length of its subnet, host bits kept.
    pub address: IpNet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub ifindex: u32,
    pub address: IpAddr,
    pub mac: Option<[u8; 6]>,
    pub state: NeighbourState,
}

/// NUD states (`include/uapi/linux/neighbour.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    Incomplete,
    Reachable,
    Stale,
    Delay,
    Probe,
    Failed,
    NoArp,
    Permanent,
    None,
}

impl NeighbourState {
    /// Whether its MAC address may be used: the kernel's `NUD_VALID`.
    pub fn is_valid(self) -> bool {
        matches!(
            self,
            Self::Reachable
                | Self::Stale
                | Self::Delay
                | Self::Probe
                | Self::NoArp
                | Self::Permanent
        )
    }

    /// iproute2's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "INCOMPLETE",
            Self::Reachable => "REACHABLE",
            Self::Stale => "STALE",
            Self::Delay => "DELAY",
            Self::Probe => "PROBE",
            Self::Failed => "FAILED",
            Self::NoArp => "NOARP",
            Self::Permanent => "PERMANENT",
            Self::None => "NONE",
        }
    }
}

//! What the kernel's generic families say of an interface: its abilities in XDP, its offloads and
//! its queues.

use std::{collections::BTreeSet, io, os::fd::BorrowedFd};

use tokio::sync::Mutex;

use super::{
    requests::RequestError,
    socket::Socket,
    wire::{Attributes, Request, push_attribute, u16_at},
};

/// Size of `genlmsghdr`.
const HEADER_LEN: usize = 4;

// Not in `libc`: `linux/netdev.h` and `linux/ethtool_netlink.h`.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_HW: u16 = 2;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

/// `NETDEV_XDP_ACT_*`: what an interface can do in native mode, as it is now. Some drivers can only
/// take redirected frames while they have a program, a veth only while its peer has one or GRO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Programs may redirect the frames that it receives.
    pub redirect: bool,
    /// Takes frames that are redirected to it.
    pub ndo_xmit: bool,
    /// Hands over frames that span several buffers.
    pub rx_sg: bool,
    /// Takes such frames.
    pub ndo_xmit_sg: bool,
}

/// Offloads by their names in the kernel, for example "rx-vlan-hw-parse".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    pub active: BTreeSet<String>,
    pub changeable: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    pub rx: u32,
    pub tx: u32,
    /// Of both directions, beside those.
    pub combined: u32,
}

/// A socket for requests to generic families, one at a time.
pub struct Generic(Mutex<Socket>);

impl Generic {
    /// In the network namespace of the calling thread.
    pub fn open() -> Result<Self, RequestError> {
        let socket = Socket::open(netlink_sys::protocols::NETLINK_GENERIC);
        Ok(Self(Mutex::new(socket.map_err(RequestError::Socket)?)))
    }

    /// In another network namespace.
    pub fn open_in(namespace: BorrowedFd<'_>) -> Result<Self, RequestError> {
        let socket = Socket::open_in(namespace, netlink_sys::protocols::NETLINK_GENERIC);
        Ok(Self(Mutex::new(socket.map_err(RequestError::Socket)?)))
    }

    /// `None` where the kernel is older than 6.3.
    pub async fn xdp_features(&self, ifindex: u32) -> Result<Option<XdpFeatures>, RequestError> {
        let ask = |family| {
            Request::new(family, 0, &header(NETDEV_CMD_DEV_GET))
                .attribute(NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes())
        };
        self.ask("netdev", ifindex, ask, xdp_features).await
    }

    /// `None` where the kernel or the driver does not tell.
    pub async fn offloads(&self, ifindex: u32) -> Result<Option<Offloads>, RequestError> {
        let ask = |family| ethtool_request(family, ETHTOOL_MSG_FEATURES_GET, ifindex);
        self.ask("ethtool", ifindex, ask, offloads).await
    }

    /// `None` where the kernel or the driver does not tell.
    pub async fn queues(&self, ifindex: u32) -> Result<Option<Queues>, RequestError> {
        let ask = |family| ethtool_request(family, ETHTOOL_MSG_CHANNELS_GET, ifindex);
        self.ask("ethtool", ifindex, ask, queues).await
    }

    async fn ask<T>(
        &self,
        family: &'static str,
        ifindex: u32,
        request: impl FnOnce(u16) -> Request,
        decode: fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        let failed = |source| RequestError::Generic { family, ifindex, source };
        let mut socket = self.0.lock().await;
        let Some(id) = resolve(&mut socket, family).await.map_err(failed)? else {
            return Ok(None);
        };
        match socket.request(request(id), |message| decode(message.body)).await {
            Ok(answers) => Ok(answers.into_iter().next()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The number that the kernel gave to a family at boot.
async fn resolve(socket: &mut Socket, family: &str) -> io::Result<Option<u16>> {
    const CONTROLLER: u16 = 0x10;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    let name = [family.as_bytes(), &[0]].concat();
    let request = Request::new(CONTROLLER, 0, &header(CTRL_CMD_GETFAMILY))
        .attribute(CTRL_ATTR_FAMILY_NAME, &name);
    let id = |body: &[u8]| u16_at(Attributes::after(HEADER_LEN, body).get(CTRL_ATTR_FAMILY_ID)?, 0);
    match socket.request(request, |message| id(message.body)).await {
        Ok(ids) => Ok(ids.into_iter().next()),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn header(command: u8) -> [u8; HEADER_LEN] {
    [command, 1, 0, 0]
}

fn ethtool_request(family: u16, command: u8, ifindex: u32) -> Request {
    const NLA_F_NESTED: u16 = 1 << 15;
    let mut device = Vec::new();
    push_attribute(&mut device, ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes());
    Request::new(family, 0, &header(command)).attribute(ETHTOOL_A_HEADER | NLA_F_NESTED, &device)
}

fn xdp_features(body: &[u8]) -> Option<XdpFeatures> {
    let bits = Attributes::after(HEADER_LEN, body).get(NETDEV_A_DEV_XDP_FEATURES)?;
    let bits = u64::from_ne_bytes(bits.try_into().ok()?);
    let has = |bit: u32| bits & (1 << bit) != 0;
    Some(XdpFeatures { redirect: has(1), ndo_xmit: has(2), rx_sg: has(5), ndo_xmit_sg: has(6) })
}

fn offloads(body: &[u8]) -> Option<Offloads> {
    let attributes = Attributes::after(HEADER_LEN, body);
    let names = |kind| {
        let set = attributes.nested(kind)?;
        // A set without a mask lists what is in it; one with a mask marks what is in it.
        let all = set.get(ETHTOOL_A_BITSET_NOMASK).is_some();
        let names = set.nested(ETHTOOL_A_BITSET_BITS)?.iter().filter_map(|(_, bit)| {
            let bit = Attributes::after(0, bit);
            let within = all || bit.get(ETHTOOL_A_BITSET_BIT_VALUE).is_some();
            bit.text(ETHTOOL_A_BITSET_BIT_NAME).filter(|_| within).map(str::to_owned)
        });
        Some(names.collect())
    };
    Some(Offloads {
        active: names(ETHTOOL_A_FEATURES_ACTIVE)?,
        changeable: names(ETHTOOL_A_FEATURES_HW)?,
    })
}

fn queues(body: &[u8]) -> Option<Queues> {
    let attributes = Attributes::after(HEADER_LEN, body);
    // What an interface has none of is not told.
    let count = |kind| attributes.u32(kind).unwrap_or(0);
    let queues = Queues {
        rx: count(ETHTOOL_A_CHANNELS_RX_COUNT),
        tx: count(ETHTOOL_A_CHANNELS_TX_COUNT),
        combined: count(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
    };
    (queues != Queues { rx: 0, tx: 0, combined: 0 }).then_some(queues)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{Requests, namespace::Namespace};

    /// What `ethtool -K` asks.
    async fn switch(generic: &Generic, ifindex: u32, name: &str, on: bool) {
        const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
        const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
        const NESTED: u16 = 1 << 15;
        let nest = |kind: u16, value: &[u8]| {
            let mut bytes = Vec::new();
            push_attribute(&mut bytes, kind, value);
            bytes
        };
        let mut bit = nest(ETHTOOL_A_BITSET_BIT_NAME, &[name.as_bytes(), &[0]].concat());
        if on {
            push_attribute(&mut bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
        }
        let bits = nest(ETHTOOL_A_BITSET_BITS | NESTED, &nest(1 | NESTED, &bit));
        let mut socket = generic.0.lock().await;
        let family = resolve(&mut socket, "ethtool").await.unwrap().unwrap();
        let request = ethtool_request(family, ETHTOOL_MSG_FEATURES_SET, ifindex)
            .attribute(ETHTOOL_A_FEATURES_WANTED | NESTED, &bits);
        socket.request(request, |_| None::<()>).await.unwrap();
    }

    async fn ifindex(name: &str) -> u32 {
        let links = Requests::open().unwrap().links().await.unwrap();
        links.iter().find(|details| details.link.name == name).unwrap().link.ifindex
    }

    #[test]
    fn an_interface_tells_its_abilities_and_offloads() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.sh("ip link add va type veth peer name vb\nip link set va up\nip link set vb up");
        namespace.run(|| async {
            let (generic, va) = (Generic::open().unwrap(), ifindex("va").await);
            let features = generic.xdp_features(va).await.unwrap().unwrap();
            // Its peer runs no NAPI.
            assert!(features.redirect && features.rx_sg && !features.ndo_xmit);
            switch(&generic, ifindex("vb").await, "rx-gro", true).await;
            let features = generic.xdp_features(va).await.unwrap().unwrap();
            assert!(features.ndo_xmit && features.ndo_xmit_sg);

            let offloads = generic.offloads(va).await.unwrap().unwrap();
            assert!(offloads.active.contains("tx-checksum-ip-generic"), "{offloads:?}");
            assert!(offloads.changeable.contains("tx-checksum-ip-generic"), "{offloads:?}");
            assert!(offloads.active.contains("highdma"), "{offloads:?}");
            assert!(!offloads.active.contains("rx-gro-list"), "{offloads:?}");
            switch(&generic, va, "tx-checksum-ip-generic", false).await;
            let offloads = generic.offloads(va).await.unwrap().unwrap();
            assert!(!offloads.active.contains("tx-checksum-ip-generic"), "{offloads:?}");
            assert!(offloads.changeable.contains("tx-checksum-ip-generic"), "{offloads:?}");

            let queues = generic.queues(va).await.unwrap().unwrap();
            assert_eq!((queues.rx, queues.tx, queues.combined), (1, 1, 0));
            assert_eq!(generic.queues(ifindex("lo").await).await.unwrap(), None);
            let error = generic.offloads(9999).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "cannot ask the kernel's ethtool about interface 9999: No such device (os error 19)"
            );
        });
    }

    #[test]
    fn another_namespace_is_asked_from_here() {
        let (Some(namespace), Some(other)) = (Namespace::new(), Namespace::new()) else { return };
        namespace.sh("ip link add va index 101 type veth peer name vb index 102");
        other.run(|| async {
            let far = Generic::open_in(namespace.as_fd()).unwrap();
            assert!(far.offloads(101).await.unwrap().is_some());
            let near = Generic::open().unwrap();
            near.offloads(101).await.unwrap_err();
        });
    }

    #[test]
    fn a_family_that_the_kernel_lacks_is_none() {
        let Some(namespace) = Namespace::new() else { return };
        namespace.run(|| async {
            let mut socket = Socket::open(netlink_sys::protocols::NETLINK_GENERIC).unwrap();
            assert_eq!(resolve(&mut socket, "no_such_family").await.unwrap(), None);
            assert!(resolve(&mut socket, "nlctrl").await.unwrap().is_some());
        });
    }

    #[test]
    fn bits_of_xdp_features() {
        let decode = |bits: u64| {
            let mut body = header(1).to_vec();
            push_attribute(&mut body, NETDEV_A_DEV_XDP_FEATURES, &bits.to_ne_bytes());
            let features = xdp_features(&body).unwrap();
            [features.redirect, features.ndo_xmit, features.rx_sg, features.ndo_xmit_sg]
        };
        assert_eq!(decode(0b10), [true, false, false, false]);
        assert_eq!(decode(0b100), [false, true, false, false]);
        assert_eq!(decode(0b10_0000), [false, false, true, false]);
        assert_eq!(decode(0b100_0000), [false, false, false, true]);
        assert_eq!(decode(0b1_1001), [false; 4]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = (xdp_features(&body), offloads(&body), queues(&body));
        }
    }
}

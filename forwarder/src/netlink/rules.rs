//! The kernel's rules that XDP would bypass, as far as netlink tells of them, and when they change.

use std::io;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};

use super::{ipsec, lists, nftables, socket::Socket, traffic_control};
use crate::bypass::{Finding, Port, rules};

/// Of notifications: what is lost only costs another reading.
const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// What was found last, when the kernel said `K` of it, between these interfaces.
type Known<K> = Option<(K, Vec<Port>, Vec<Finding>)>;

/// Reads rules, and what it has read before only where it may have changed.
pub struct Rules {
    route: Socket,
    /// `None`: this kernel has none.
    netfilter: Option<Socket>,
    xfrm: Option<Socket>,
    nftables: Known<Option<u32>>,
    policies: Known<ipsec::Fingerprint>,
}

impl Rules {
    /// In the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            route: Socket::open(NETLINK_ROUTE)?,
            netfilter: where_there_is(Socket::open(NETLINK_NETFILTER))?,
            xfrm: where_there_is(Socket::open(NETLINK_XFRM))?,
            nftables: None,
            policies: None,
        })
    }

    /// Reads all of it again next time.
    pub fn forget(&mut self) {
        (self.nftables, self.policies) = (None, None);
    }

    /// The interfaces with these indexes, as they are called now.
    pub async fn ports(&mut self, ifindexes: &[u32]) -> io::Result<Vec<Port>> {
        let links = lists::links(&mut self.route).await.map_err(io::Error::other)?;
        let ours = links.into_iter().map(|details| details.link);
        let ours = ours.filter(|link| ifindexes.contains(&link.ifindex));
        Ok(ours.map(|link| Port { ifindex: link.ifindex, name: link.name }).collect())
    }

    pub async fn nftables(&mut self, ports: &[Port]) -> io::Result<Vec<Finding>> {
        let Some(socket) = &mut self.netfilter else { return Ok(Vec::new()) };
        let generation = nftables::read_generation(socket).await?;
        if let Some(found) = still(self.nftables.as_ref(), &generation, ports) {
            return Ok(found);
        }
        let found = rules::findings(&nftables::read(socket).await?, ports);
        self.nftables = Some((generation, ports.to_vec(), found.clone()));
        Ok(found)
    }

    pub async fn traffic_control(&mut self, ports: &[Port]) -> io::Result<Vec<Finding>> {
        traffic_control::read(&mut self.route, ports).await
    }

    pub async fn ipsec(&mut self, ports: &[Port]) -> io::Result<Vec<Finding>> {
        let Some(socket) = &mut self.xfrm else { return Ok(Vec::new()) };
        let print = ipsec::fingerprint(socket).await?;
        if let Some(found) = still(self.policies.as_ref(), &print, ports) {
            return Ok(found);
        }
        let found = ipsec::findings(&ipsec::read(socket).await?, ports);
        self.policies = Some((print, ports.to_vec(), found.clone()));
        Ok(found)
    }
}

fn still<K: PartialEq>(
    known: Option<&(K, Vec<Port>, Vec<Finding>)>,
    now: &K,
    ports: &[Port],
) -> Option<Vec<Finding>> {
    let (then, between, found) = known?;
    (then == now && between == ports).then(|| found.clone())
}

/// Tells when rules change.
pub struct RulesWatch {
    route: Socket,
    netfilter: Option<Socket>,
    xfrm: Option<Socket>,
}

impl RulesWatch {
    /// In the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let subscribe =
            |protocol, groups: &[u32]| Socket::subscribe_to(protocol, groups, RECEIVE_BUFFER_BYTES);
        Ok(Self {
            // Links for their names, by which rules know them.
            route: subscribe(NETLINK_ROUTE, &[libc::RTNLGRP_TC, libc::RTNLGRP_LINK])?,
            netfilter: where_there_is(subscribe(NETLINK_NETFILTER, &[nftables::GROUP]))?,
            xfrm: where_there_is(subscribe(NETLINK_XFRM, &[ipsec::GROUP]))?,
        })
    }

    /// Returns when something has changed; nothing is lost when this future is dropped.
    ///
    /// # Errors
    ///
    /// The sockets tell nothing any more. That a notification was lost is no error: it was one.
    pub async fn changed(&mut self) -> io::Result<()> {
        let Self { route, netfilter, xfrm } = self;
        let changed = tokio::select! {
            changed = route.receive() => changed,
            changed = receive(netfilter) => changed,
            changed = receive(xfrm) => changed,
        };
        match changed {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn receive(socket: &mut Option<Socket>) -> io::Result<&[u8]> {
    match socket {
        Some(socket) => socket.receive().await,
        None => std::future::pending().await,
    }
}

/// A protocol that the kernel was built without.
fn where_there_is(socket: io::Result<Socket>) -> io::Result<Option<Socket>> {
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::netlink::namespace::Namespace;

    const PATIENCE: Duration = Duration::from_secs(10);
    const QUIET: Duration = Duration::from_millis(100);

    /// Whether a change is told, and nothing before and after it.
    #[test]
    fn every_kind_of_change_is_told() {
        let Some(namespace) = Namespace::new() else { return };
        if !Namespace::has("nft") || !Namespace::has("tc") {
            return;
        }
        namespace.sh("ip link add va type veth peer name vb");
        for change in [
            "nft add table ip t",
            "nft 'add set ip t s { type ifname; }'",
            "nft 'add element ip t s { \"va\" }'",
            "nft delete table ip t",
            "tc qdisc add dev va clsact",
            "tc filter add dev va ingress prio 7 u32 match u32 0 0",
            "tc filter del dev va ingress prio 7",
            "ip link set va name vc",
            "ip xfrm policy add src 198.18.0.0/24 dst 198.18.1.0/24 dir fwd",
            "ip xfrm policy delete src 198.18.0.0/24 dst 198.18.1.0/24 dir fwd",
        ] {
            namespace.run(|| async {
                let mut watch = RulesWatch::open().unwrap();
                let quiet = timeout(QUIET, watch.changed()).await;
                assert!(quiet.is_err(), "something before {change}");
                namespace.sh(change);
                let told = timeout(PATIENCE, watch.changed()).await;
                told.unwrap_or_else(|_| panic!("{change} is not told")).unwrap();
            });
        }
    }
}

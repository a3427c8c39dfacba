//! What we ask of the kernel, and the one thing that we make it do.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use tokio::sync::{Mutex, MutexGuard};

use super::{
    decode::{
        AF_INET, AF_INET6, LinkDetails, NTF_EXT_MANAGED, linux_answer, neighbour,
        neighbour_extended_flags, neighbour_flags, route_interfaces,
    },
    event::{NeighbourState, Next},
    lists::{self, ListError},
    socket::Socket,
    wire::{Attributes, Request, push_attribute},
};
use crate::{paths::Member, prefix::Prefix, route::protocol::FORWARDER};

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] io::Error),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("cannot ask the kernel for the route to {destination}: {source}")]
    Route { destination: IpAddr, source: io::Error },
    #[error("Linux does not take the route {prefix}: {source}")]
    WriteRoute { prefix: Prefix, source: io::Error },
    #[error("the kernel does not resolve {address} on interface {ifindex}: {source}")]
    Probe { ifindex: u32, address: IpAddr, source: io::Error },
    #[error("cannot ask the kernel for the counters of interface {ifindex}: {source}")]
    Stats { ifindex: u32, source: io::Error },
    #[error("cannot ask the kernel's {family} about interface {ifindex}: {source}")]
    Generic { family: &'static str, ifindex: u32, source: io::Error },
}

/// What Linux does with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinuxAnswer {
    /// It is for this host.
    Local,
    /// There is no route, or one of a type that leads nowhere.
    Nothing,
    Via(Next),
}

/// How a route of ours changes in Linux's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxWrite {
    Add,
    Replace,
    Delete,
}

/// A socket for requests, one at a time.
pub struct Requests(Mutex<Socket>);

impl Requests {
    /// In the network namespace of the calling thread.
    pub fn open() -> Result<Self, RequestError> {
        let socket = Socket::open(netlink_sys::protocols::NETLINK_ROUTE);
        Ok(Self(Mutex::new(socket.map_err(RequestError::Socket)?)))
    }

    /// In another network namespace.
    pub fn open_in(namespace: BorrowedFd<'_>) -> Result<Self, RequestError> {
        let socket = Socket::open_in(namespace, netlink_sys::protocols::NETLINK_ROUTE);
        Ok(Self(Mutex::new(socket.map_err(RequestError::Socket)?)))
    }

    pub(super) async fn socket(&self) -> MutexGuard<'_, Socket> {
        self.0.lock().await
    }

    pub async fn links(&self) -> Result<Vec<LinkDetails>, RequestError> {
        Ok(lists::links(&mut *self.0.lock().await).await?)
    }

    /// Interfaces of all default routes of the main table, ascending.
    pub async fn default_route_interfaces(&self) -> Result<Vec<u32>, RequestError> {
        let routes = lists::default_routes(&mut *self.0.lock().await).await?;
        let mut interfaces: Vec<_> = routes.into_iter().flatten().collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        Ok(interfaces)
    }

    /// The interface by which the kernel would send to this address.
    pub async fn interface_towards(
        &self,
        destination: IpAddr,
    ) -> Result<Option<u32>, RequestError> {
        let (family, octets) = octets(destination);
        let bits = if family == AF_INET { 32 } else { 128 };
        let header = [family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let request =
            Request::new(libc::RTM_GETROUTE, 0, &header).attribute(libc::RTA_DST, &octets);
        let mut socket = self.0.lock().await;
        match socket.request(request, |message| route_interfaces(message.body)).await {
            Ok(routes) => Ok(routes.into_iter().flatten().next()),
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(source) => Err(RequestError::Route { destination, source }),
        }
    }

    /// Changes the main table, under our protocol. Members are ascending; none for a deletion.
    pub async fn write_route(
        &self,
        write: LinuxWrite,
        prefix: Prefix,
        members: &[Member],
    ) -> Result<(), RequestError> {
        let request = route_request(write, prefix, members);
        let mut socket = self.0.lock().await;
        let written = socket.request(request, |_| None::<()>).await;
        written.map(drop).map_err(|source| RequestError::WriteRoute { prefix, source })
    }

    /// What Linux would do with a packet of this host's to this address, by its tables alone.
    pub async fn lookup(&self, destination: IpAddr) -> Result<LinuxAnswer, RequestError> {
        // The route as it is in the table, and not what a lookup makes of it.
        const RTM_F_FIB_MATCH: u32 = 0x2000;
        let (family, octets) = octets(destination);
        let bits = if family == AF_INET { 32 } else { 128 };
        let mut header = [family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
        let request =
            Request::new(libc::RTM_GETROUTE, 0, &header).attribute(libc::RTA_DST, &octets);
        let mut socket = self.0.lock().await;
        match socket.request(request, |message| linux_answer(message.body)).await {
            Ok(answers) => Ok(answers.into_iter().next().unwrap_or(LinuxAnswer::Nothing)),
            Err(error) if is_unreachable(&error) => Ok(LinuxAnswer::Nothing),
            Err(source) => Err(RequestError::Route { destination, source }),
        }
    }

    /// The id that a network namespace has in this one; links name theirs by it.
    pub async fn namespace_id(&self, namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
        // `linux/net_namespace.h`; a `rtgenmsg` is one byte, padded.
        const NETNSA_NSID: u16 = 1;
        const NETNSA_FD: u16 = 3;
        const HEADER_LEN: usize = 4;
        let request = Request::new(libc::RTM_GETNSID, 0, &[0; HEADER_LEN])
            .attribute(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
        let id = |body: &[u8]| Attributes::after(HEADER_LEN, body).u32(NETNSA_NSID);
        let ids = self.0.lock().await.request(request, |message| id(message.body)).await?;
        Ok(ids.first().map(|id| id.cast_signed()).filter(|&id| id >= 0))
    }

    /// Has the kernel resolve a neighbour, or confirm one that it has not heard of for a while.
    /// Called every few seconds, it keeps the neighbour resolved; nothing stays behind afterwards
    /// but an entry that ages like any other.
    pub async fn probe(&self, ifindex: u32, address: IpAddr) -> Result<(), RequestError> {
        let failed = |source| RequestError::Probe { ifindex, address, source };
        let mut socket = self.0.lock().await;
        let Some(flags) = probe_flags(&mut socket, ifindex, address).await.map_err(failed)? else {
            return Ok(());
        };
        let (family, octets) = octets(address);
        let request = neighbour_request(libc::RTM_NEWNEIGH, NLM_F_CREATE, family, ifindex, flags)
            .attribute(libc::NDA_DST, &octets);
        socket.request(request, |_| None::<()>).await.map_err(failed)?;
        Ok(())
    }
}

/// What a route of IPv6 has where nobody says otherwise (`IP6_RT_PRIO_USER`); of IPv4 it is zero.
const METRIC6: u32 = 1024;
// Not in `libc`.
const RTA_VIA: u16 = 18;
const RTNH_HEADER_LEN: usize = 8;

fn route_request(write: LinuxWrite, prefix: Prefix, members: &[Member]) -> Request {
    let (family, destination) = octets(prefix.address());
    let (kind, flags) = match write {
        LinuxWrite::Add => (libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL),
        LinuxWrite::Replace => (libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE),
        LinuxWrite::Delete => (libc::RTM_DELROUTE, 0),
    };
    let is_connected = members.iter().all(|member| member.hop.via.is_none());
    let scope = match (write, is_connected && family == AF_INET) {
        (LinuxWrite::Delete, _) => libc::RT_SCOPE_NOWHERE,
        (_, true) => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let table = libc::RT_TABLE_MAIN;
    let header =
        [family, prefix.len(), 0, 0, table, FORWARDER, scope, libc::RTN_UNICAST, 0, 0, 0, 0];
    let mut request = Request::new(kind, flags, &header).attribute(libc::RTA_DST, &destination);
    if family == AF_INET6 {
        request = request.attribute(libc::RTA_PRIORITY, &METRIC6.to_ne_bytes());
    }
    match members {
        [] => request,
        [only] => {
            request = request.attribute(libc::RTA_OIF, &only.hop.ifindex.to_ne_bytes());
            match gateway(family, only) {
                Some((kind, value)) => request.attribute(kind, &value),
                None => request,
            }
        }
        several => {
            let list: Vec<u8> = several.iter().flat_map(|it| next_hop(family, it)).collect();
            request.attribute(libc::RTA_MULTIPATH, &list)
        }
    }
}

/// An `rtnexthop`.
#[expect(clippy::cast_possible_truncation, reason = "some bytes; weights are 256 at most")]
fn next_hop(family: u8, member: &Member) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, (member.weight - 1) as u8];
    bytes.extend_from_slice(&member.hop.ifindex.to_ne_bytes());
    debug_assert_eq!(bytes.len(), RTNH_HEADER_LEN);
    if let Some((kind, value)) = gateway(family, member) {
        push_attribute(&mut bytes, kind, &value);
    }
    let length = bytes.len() as u16;
    bytes[..2].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Of the route's family, or another with its number before it.
fn gateway(family: u8, member: &Member) -> Option<(u16, Vec<u8>)> {
    let (of, octets) = octets(member.hop.via?);
    if of == family {
        return Some((libc::RTA_GATEWAY, octets));
    }
    Some((RTA_VIA, [&u16::from(of).to_ne_bytes()[..], &octets].concat()))
}

/// With which flags an entry is used without a change to it. `None`: with none, since the kernel
/// would make an entry forget that it is permanent, and stop to keep one that it manages.
async fn probe_flags(socket: &mut Socket, ifindex: u32, address: IpAddr) -> io::Result<Option<u8>> {
    let (family, octets) = octets(address);
    let request = neighbour_request(libc::RTM_GETNEIGH, 0, family, ifindex, 0)
        .attribute(libc::NDA_DST, &octets);
    let decode = |body: &[u8]| {
        let managed = neighbour_extended_flags(body) & NTF_EXT_MANAGED != 0;
        Some((neighbour(body)?.state, managed, neighbour_flags(body)?))
    };
    let entries = match socket.request(request, |message| decode(message.body)).await {
        Ok(entries) => entries,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(match entries.first() {
        None => Some(libc::NTF_USE),
        Some((NeighbourState::Permanent | NeighbourState::NoArp, ..) | (_, true, _)) => None,
        Some((_, false, flags)) => Some(libc::NTF_USE | flags & libc::NTF_EXT_LEARNED),
    })
}

fn neighbour_request(kind: u16, flags: u16, family: u8, ifindex: u32, entry_flags: u8) -> Request {
    let mut header = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, entry_flags, 0];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    Request::new(kind, flags, &header)
}

fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    }
}

/// No route, or one of type unreachable, prohibit or blackhole.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
    )
}

//! What we ask of the kernel, and the one thing that we make it do.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::NLM_F_CREATE;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    decode::{
        AF_INET, AF_INET6, LinkDetails, NTF_EXT_MANAGED, neighbour, neighbour_extended_flags,
        neighbour_flags, route_interfaces,
    },
    event::NeighbourState,
    lists::{self, ListError},
    socket::Socket,
    wire::{Attributes, Request},
};

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] io::Error),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("cannot ask the kernel for the route to {destination}: {source}")]
    Route { destination: IpAddr, source: io::Error },
    #[error("the kernel does not resolve {address} on interface {ifindex}: {source}")]
    Probe { ifindex: u32, address: IpAddr, source: io::Error },
    #[error("cannot ask the kernel for the counters of interface {ifindex}: {source}")]
    Stats { ifindex: u32, source: io::Error },
    #[error("cannot ask the kernel's {family} about interface {ifindex}: {source}")]
    Generic { family: &'static str, ifindex: u32, source: io::Error },
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

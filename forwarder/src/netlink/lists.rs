//! The kernel's complete lists.

use std::io;

use super::{
    decode::{
        ADDRESS_HEADER_LEN, AF_INET, AF_INET6, LINK_HEADER_LEN, LinkDetails, NEIGHBOUR_HEADER_LEN,
        ROUTE_HEADER_LEN, address, default_route_interfaces, link_details, local_route, neighbour,
    },
    event::{Address, Neighbour},
    local_routes::LocalRoutes,
    socket::Socket,
    wire::Request,
};

#[derive(Debug, thiserror::Error)]
#[error("cannot read the kernel's list of {list}: {source}")]
pub struct ListError {
    list: &'static str,
    source: io::Error,
}

pub(super) async fn links(socket: &mut Socket) -> Result<Vec<LinkDetails>, ListError> {
    let request = Request::new(libc::RTM_GETLINK, 0, &[0; LINK_HEADER_LEN])
        .attribute(libc::IFLA_EXT_MASK, &libc::RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    list(socket, "links", [request], link_details).await
}

pub(super) async fn addresses(socket: &mut Socket) -> Result<Vec<Address>, ListError> {
    let requests = [AF_INET, AF_INET6]
        .map(|family| Request::new(libc::RTM_GETADDR, 0, &header::<ADDRESS_HEADER_LEN>(family)));
    list(socket, "addresses", requests, address).await
}

pub(super) async fn neighbours(socket: &mut Socket) -> Result<Vec<Neighbour>, ListError> {
    let requests = [AF_INET, AF_INET6]
        .map(|family| Request::new(libc::RTM_GETNEIGH, 0, &header::<NEIGHBOUR_HEADER_LEN>(family)));
    list(socket, "neighbours", requests, neighbour).await
}

pub(super) async fn local_routes(socket: &mut Socket) -> Result<LocalRoutes, ListError> {
    let requests = table_dumps(libc::RT_TABLE_LOCAL);
    let routes = list(socket, "local routes", requests, local_route).await?;
    Ok(routes.into_iter().collect())
}

/// The interfaces of each default route, one route after the other.
pub(super) async fn default_routes(socket: &mut Socket) -> Result<Vec<Vec<u32>>, ListError> {
    let requests = table_dumps(libc::RT_TABLE_MAIN);
    list(socket, "routes", requests, default_route_interfaces).await
}

fn table_dumps(table: u8) -> [Request; 2] {
    [AF_INET, AF_INET6].map(|family| {
        Request::new(libc::RTM_GETROUTE, 0, &header::<ROUTE_HEADER_LEN>(family))
            .attribute(libc::RTA_TABLE, &u32::from(table).to_ne_bytes())
    })
}

/// All zero but for the family.
fn header<const LEN: usize>(family: u8) -> [u8; LEN] {
    std::array::from_fn(|offset| if offset == 0 { family } else { 0 })
}

async fn list<T>(
    socket: &mut Socket,
    list: &'static str,
    requests: impl IntoIterator<Item = Request>,
    decode: fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, ListError> {
    let mut all = Vec::new();
    for request in requests {
        match socket.dump(request, |message| decode(message.body)).await {
            Ok(part) => all.extend(part),
            // A table that nobody has written to yet; a kernel without IPv6.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
            }
            Err(source) => return Err(ListError { list, source }),
        }
    }
    Ok(all)
}

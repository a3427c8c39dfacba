//! The kernel's complete lists.

use std::io;

use super::{
    decode::{
        ADDRESS_HEADER_LEN, AF_INET, AF_INET6, LINK_HEADER_LEN, LOCAL_PRIORITY, LinkDetails,
        MAIN_PRIORITY, NEIGHBOUR_HEADER_LEN, NEXTHOP_HEADER_LEN, ROUTE_HEADER_LEN, RTM_GETNEXTHOP,
        RULE_HEADER_LEN, RuleKind, address, default_route_interfaces, kernel_route, link_details,
        local_route, neighbour, nexthop, rule,
    },
    event::{Address, KernelRoute, Neighbour, Nexthop, Rule},
    local_routes::LocalRoutes,
    socket::{Dump, Part, Socket},
    wire::Request,
};
use crate::prefix::{Family, Prefix};

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

pub(super) async fn nexthops(socket: &mut Socket) -> Result<Vec<Nexthop>, ListError> {
    let request = Request::new(RTM_GETNEXTHOP, 0, &[0; NEXTHOP_HEADER_LEN]);
    list(socket, "nexthop objects", [request], nexthop).await
}

/// Rules that are not those of every machine, and those that are missing.
pub(super) async fn rules(socket: &mut Socket) -> Result<Vec<Rule>, ListError> {
    let requests = [AF_INET, AF_INET6]
        .map(|family| Request::new(libc::RTM_GETRULE, 0, &header::<RULE_HEADER_LEN>(family)));
    let kinds = list(socket, "rules", requests, rule).await?;
    let own = [(LOCAL_PRIORITY, "local"), (MAIN_PRIORITY, "main")];
    let missing = [true, false].into_iter().flat_map(|is_ipv4| {
        // A kernel without IPv6 has no rules for it.
        let has_any = kinds
            .iter()
            .any(|kind| matches!(kind, RuleKind::Own { is_ipv4: it, .. } if *it == is_ipv4));
        let is_there = |priority| kinds.contains(&RuleKind::Own { is_ipv4, priority });
        let missing = own.into_iter().filter(move |_| has_any);
        missing
            .filter(|own| !is_there(own.0))
            .map(move |(priority, table)| Rule {
                is_ipv4,
                priority,
                text: format!("lookup {table} is missing"),
            })
            .collect::<Vec<_>>()
    });
    let mut rules: Vec<Rule> = missing.collect();
    rules.extend(kinds.into_iter().filter_map(|kind| match kind {
        RuleKind::Other(rule) => Some(rule),
        _ => None,
    }));
    rules.sort();
    Ok(rules)
}

/// All routes of a family in the main table, to be read in parts.
pub(super) fn routes(family: Family) -> Dump {
    let family = if family == Family::Inet { AF_INET } else { AF_INET6 };
    Dump::new(table_dump(libc::RT_TABLE_MAIN, family))
}

pub(super) async fn routes_part(
    socket: &mut Socket,
    dump: &mut Dump,
) -> Result<Part<(Prefix, KernelRoute)>, ListError> {
    match socket.dump_part(dump, |message| kernel_route(message.body)).await {
        Err(error) if is_no_list(&error) => Ok(Part::End(Vec::new())),
        Err(source) => Err(ListError { list: "routes", source }),
        Ok(part) => Ok(part),
    }
}

/// The interfaces of each default route, one route after the other.
pub(super) async fn default_routes(socket: &mut Socket) -> Result<Vec<Vec<u32>>, ListError> {
    let requests = table_dumps(libc::RT_TABLE_MAIN);
    list(socket, "routes", requests, default_route_interfaces).await
}

fn table_dumps(table: u8) -> [Request; 2] {
    [AF_INET, AF_INET6].map(|family| table_dump(table, family))
}

fn table_dump(table: u8, family: u8) -> Request {
    Request::new(libc::RTM_GETROUTE, 0, &header::<ROUTE_HEADER_LEN>(family))
        .attribute(libc::RTA_TABLE, &u32::from(table).to_ne_bytes())
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
            Err(error) if is_no_list(&error) => {}
            Err(source) => return Err(ListError { list, source }),
        }
    }
    Ok(all)
}

/// A table that nobody has written to yet; a kernel without IPv6, or without nexthop objects.
fn is_no_list(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP))
}

//! What the walk looks up, wherever it lives: BPF maps in the kernel, plain tables in a test.

use crate::{
    abi::{ADJACENCY_NONE, Adjacency, Leads, RouteId, RouteWord},
    verdict::Reason,
};

pub trait Tables {
    /// The route of the longest prefix that holds this destination; `ROUTE_NONE` where none does.
    fn route4(&self, destination: [u8; 4]) -> RouteId;
    fn route6(&self, destination: [u8; 16]) -> RouteId;

    /// Whether this is an address, or a broadcast address, of this host.
    fn is_local4(&self, address: [u8; 4]) -> bool;

    /// Where a route goes on this CPU.
    fn word(&self, route: RouteId) -> Option<RouteWord>;

    /// The index of the adjacency that this bucket has.
    fn bucket(&self, index: u32) -> Option<u32>;

    fn adjacency(&self, index: u32) -> Option<&Adjacency>;

    /// What makes flow hashes differ from those of other machines.
    fn hash_seed(&self) -> u64;

    /// Whether somebody has followed routes and neighbours lately.
    fn lease_holds(&self) -> bool;

    /// Asks the kernel to send the frame, once the program returns, out of this port. `false`: no
    /// such port, and nothing will be sent.
    fn redirect(&self, port: u32) -> bool;
}

/// Hands frames to other CPUs.
pub trait Steering {
    /// The CPU that is to take flows of this hash; `None` where it is this one.
    fn worker(&self, hash: impl FnOnce() -> u32) -> Option<u32>;

    /// Asks the kernel to queue the frame, once the program returns, for this CPU. `false`: it has
    /// no queue.
    fn steer(&self, cpu: u32) -> bool;
}

/// For the program that runs where frames were steered to, and where steering is off.
pub struct Unsteered;

impl Steering for Unsteered {
    #[inline(always)]
    fn worker(&self, _: impl FnOnce() -> u32) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn steer(&self, _: u32) -> bool {
        false
    }
}

/// Follows a route to its adjacency on this CPU; only a group asks for the flow's hash.
#[inline(always)]
pub(crate) fn resolve(
    tables: &impl Tables,
    route: RouteId,
    hash: impl FnOnce() -> u32,
) -> Result<&Adjacency, Reason> {
    let index = match tables.word(route).ok_or(Reason::Punt)?.resolve()? {
        Leads::Adjacency(index) => index,
        Leads::Group(buckets) => tables.bucket(buckets.pick(hash())).ok_or(Reason::Punt)?,
    };
    if index == ADJACENCY_NONE {
        return Err(Reason::Punt);
    }
    tables.adjacency(index).ok_or(Reason::Punt)
}

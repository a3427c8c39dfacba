//! What client and daemon say to each other: JSON, one message a frame.
//!
//! [`Hello`] and [`Response::Refused`] keep their form for ever, so that the two sides can always
//! tell each other that they do not fit.

use std::net::IpAddr;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{chunk::Chunk, frame::FRAME_MAX};
use crate::{
    engine::{AuditPage, Refusal, Status},
    prefix::Prefix,
    route::{Existing, NeighbourEntry, PrefixMatch, Route, RouteEntry, Selector},
    snapshot::Snapshot,
};

/// Goes up with every change of this module, or of the types that it carries.
pub const PROTOCOL_VERSION: u32 = 5;

/// Entries in one frame, or next hops of routes: so few that those of a request never exceed
/// [`FRAME_MAX`].
pub const ITEMS_PER_FRAME: usize = 512;
/// Routes in one load.
pub const LOAD_ROUTES_MAX: usize = 1 << 22;
/// Bytes of the longest answer, over all of its frames.
pub const ANSWER_MAX: usize = 64 << 20;

/// The first frame of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// Of the program, for people.
    pub version: String,
}

impl Hello {
    pub fn ours() -> Self {
        Self { protocol: PROTOCOL_VERSION, version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Why a client and a daemon cannot talk to each other, and which of them to upgrade.
    pub fn mismatch(client: &Self, daemon: &Self) -> Option<String> {
        let (older, remedy) = match client.protocol.cmp(&daemon.protocol) {
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Less => ("this command is older than", "upgrade the command"),
            std::cmp::Ordering::Greater => {
                ("this command is newer than", "restart the daemon with the new version")
            }
        };
        Some(format!(
            "{older} the running daemon (forwarder {} with protocol {}, and {} with protocol {}): {remedy}",
            client.version, client.protocol, daemon.version, daemon.protocol
        ))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Hello(Hello),
    Status,
    Stats,
    RouteAdd {
        route: Route,
        existing: Existing,
        xdp_only: bool,
    },
    /// Answered by [`Response::Ready`]; then come [`Request::LoadChunk`]s and one
    /// [`Request::LoadCommit`]. Nothing happens before that.
    RouteLoad {
        existing: Existing,
        xdp_only: bool,
    },
    LoadChunk(Chunk),
    /// The number of routes that were sent.
    LoadCommit(u64),
    RouteDelete(Selector),
    RouteFlush(Selector),
    RouteShow(Selector),
    RouteGet(IpAddr),
    Neighbours,
    /// Of the prefixes behind this one.
    Audit(Option<Prefix>),
    Unload,
}

impl Request {
    /// What the request changes, in the user's words; `None` where it only reads.
    pub fn changes(&self) -> Option<&'static str> {
        match self {
            Self::RouteAdd { existing: Existing::Refuse, .. } => Some("route add"),
            Self::RouteAdd { existing: Existing::Replace, .. } => Some("route replace"),
            Self::RouteAdd { existing: Existing::Append, .. } => Some("route append"),
            Self::RouteAdd { existing: Existing::Flush, .. }
            | Self::RouteLoad { .. }
            | Self::LoadChunk(_)
            | Self::LoadCommit(_) => Some("route load"),
            Self::RouteDelete(_) => Some("route del"),
            Self::RouteFlush(_) => Some("route flush"),
            Self::Unload => Some("unload"),
            Self::Hello(_)
            | Self::Status
            | Self::Stats
            | Self::RouteShow(_)
            | Self::RouteGet(_)
            | Self::Neighbours
            | Self::Audit(_) => None,
        }
    }

    /// What the engine could not make sense of, though it is well formed.
    pub fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::RouteDelete(selector) => {
                let exact = matches!(selector.prefix, Some(PrefixMatch::Exact(_)));
                (!exact).then_some("a route is removed by its exact prefix")
            }
            Self::RouteAdd { existing: Existing::Flush, .. } => {
                Some("one route alone does not replace all others")
            }
            Self::RouteFlush(selector) if selector.is_empty() => {
                Some("an empty selector would remove all routes: name a family at least")
            }
            Self::RouteFlush(selector) | Self::RouteShow(selector) if selector.cpus.is_some() => {
                Some("routes are shown and flushed for all CPUs together")
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Hello(Hello),
    /// Nothing was changed.
    Refused(Refusal),
    /// The next frames, so many, are one response that was too long for one.
    Parts(u32),
    Ready,
    Done,
    Count(u64),
    Status(Status),
    Stats(Snapshot),
    Route(RouteEntry),
    /// Some of the routes; [`Response::End`] after the last.
    Routes(Vec<RouteEntry>),
    Neighbours(Vec<NeighbourEntry>),
    Audit(AuditPage),
    End,
}

impl Response {
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Refusal::new(message))
    }
}

/// A message as payload.
///
/// # Panics
///
/// Never: JSON can write every type of this module.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain structures are always JSON")
}

/// The payloads of the frames that carry a response.
pub fn encode_response(response: &Response) -> Vec<Vec<u8>> {
    let payload = encode(response);
    if payload.len() <= FRAME_MAX {
        return vec![payload];
    }
    let parts = payload.chunks(FRAME_MAX);
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let mut payloads = vec![encode(&Response::Parts(count))];
    payloads.extend(parts.map(<[u8]>::to_vec));
    payloads
}

/// Reads one message.
///
/// # Errors
///
/// Says what is wrong with the JSON.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(payload)
}

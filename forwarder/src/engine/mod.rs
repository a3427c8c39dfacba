//! The one owner of all maps: it takes commands and kernel events, one after the other.

mod audit;
mod linux;
mod probes;
pub mod run;
mod told;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{
    prefix::Prefix,
    route::{Existing, NeighbourEntry, Route, RouteEntry, Selector},
    routing::Difference,
    snapshot::Snapshot,
};

/// Some of the routes that match a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePage {
    pub entries: Vec<RouteEntry>,
    /// The last prefix that was looked at; `None`: there are no more.
    pub more_after: Option<Prefix>,
}

/// What was compared, of some prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// Destinations.
    pub checked: u64,
    pub differences: Vec<Difference>,
    /// The last prefix that was looked at; `None`: there are no more.
    pub more_after: Option<Prefix>,
}

/// Why a command was not carried out: a sentence that names the thing and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub message: String,
    /// Index of the route that is at fault, in a load.
    pub index: Option<u64>,
}

impl Refusal {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), index: None }
    }
}

pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What can be asked of the engine. A refused command has changed nothing.
#[derive(Debug)]
pub enum Command {
    Status(Reply<Status>),
    Stats(Reply<Snapshot>),
    /// Answers with the route as installed.
    RouteAdd {
        route: Route,
        existing: Existing,
        /// Linux is not to have it.
        xdp_only: bool,
        reply: Reply<RouteEntry>,
    },
    /// All or nothing; answers with the number of routes.
    RouteLoad {
        routes: Vec<Route>,
        existing: Existing,
        xdp_only: bool,
        reply: Reply<u64>,
    },
    /// The selector has an exact prefix; answers with the route as it was.
    RouteDelete {
        selector: Selector,
        reply: Reply<RouteEntry>,
    },
    /// The selector is not empty; answers with the number of routes that are gone.
    RouteFlush {
        selector: Selector,
        reply: Reply<u64>,
    },
    /// In the order of prefixes, IPv4 first, a page at a time.
    RouteShow {
        selector: Selector,
        /// The prefix behind which the page begins; `None`: the first page.
        after: Option<Prefix>,
        reply: Reply<RoutePage>,
    },
    /// The route that a packet to this destination takes, by longest prefix; empty where there is
    /// none.
    RouteGet {
        destination: IpAddr,
        reply: Reply<Vec<RouteEntry>>,
    },
    Neighbours(Reply<Vec<NeighbourEntry>>),
    /// Compares what packets find with what Linux says, for some prefixes of Linux's.
    Audit {
        /// The prefix behind which the page begins; `None`: the first page.
        after: Option<Prefix>,
        reply: Reply<AuditPage>,
    },
    /// Detaches, removes everything and ends the daemon; the answer comes when nothing is left.
    Unload(Reply<()>),
}

/// How the tasks of the daemon reach the engine.
#[derive(Clone, Debug)]
pub struct EngineHandle(mpsc::Sender<Command>);

impl EngineHandle {
    /// Commands that may wait; one more waits in its sender.
    pub const QUEUE_MAX: usize = 64;

    pub fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel(Self::QUEUE_MAX);
        (Self(sender), receiver)
    }

    /// Sends a command and waits for its answer: `engine.ask(Command::Status).await`.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let gone = || Refusal::new("the daemon is shutting down");
        self.0.send(command(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// What `forwarder status` tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    /// Name of this forwarder: `--name`, or the cookie of its network namespace.
    pub name: String,
    pub pid: u32,
    pub uptime_ms: u64,
    pub kernel: String,
    pub interfaces: Vec<InterfaceStatus>,
    /// "off", or "cpus=0-3" with the CPUs that frames are steered to.
    pub steering: String,
    pub routes4: u64,
    pub routes6: u64,
    /// Routes that do not forward for now (pending or unusable).
    pub routes_waiting: u64,
    /// Destinations that the auditor has compared with Linux's answer, and how many differed.
    pub audited: u64,
    pub audit_differences: u64,
    pub routes4_max: u64,
    pub routes6_max: u64,
    /// Where the metrics are served, for example "http://127.0.0.1:9184/metrics".
    pub metrics: Option<String>,
    /// Things that a user should know, a sentence each: for example that `ip_forward` is off while
    /// XDP forwards, or that an interface fell back to generic mode.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    pub name: String,
    pub ifindex: u32,
    /// "native" or "generic".
    pub mode: String,
    pub mac: String,
    pub mtu: u32,
    pub up: bool,
    pub carrier: bool,
}

//! The engine at work: one task that owns all maps.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use forwarder_common::abi::{INTERFACE_ENSLAVED, INTERFACE_NO_IPV6, Interface};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{Command, Refusal, Reply, audit::Audited, probes::Probes};
use crate::{
    bypass::{
        Families, Finding, Kind,
        stops::{News, Stops},
    },
    config::RouteSource,
    dataplane::{AttachedMode, Dataplane, Tables, trim_heap},
    netlink::{
        Generic, Requests,
        event::{Event, Link},
    },
    prefix::Family,
    preflight::forwarding::Forwarding,
    rib::{Abilities, IPV6_MTU_MIN},
    routing::Routing,
};

/// Events that are taken in at once: one reconciliation serves them all.
const BATCH_MAX: usize = 4096;
/// Why a file of routes does not go to Linux's table.
const LOAD_REFUSED: &str = "`route load` puts routes into XDP alone, where Linux does not see them: say --xdp-only if that is meant, or load them into Linux with `ip -batch`, and forwarder follows";
/// How often the lease is renewed and silent next hops are asked again.
const TICK: Duration = Duration::from_secs(1);
/// A change of as many routes is worth giving memory back.
const ROUTES_TO_TRIM: u64 = 1 << 16;

/// What does not change while the engine runs.
#[derive(Debug)]
pub struct Facts {
    pub name: String,
    pub kernel: String,
    pub steering: String,
    pub metrics: Option<String>,
    pub metrics_routes: usize,
    pub routes: RouteSource,
    pub routes4_max: u32,
    pub routes6_max: u32,
    pub cpus_online: Vec<u32>,
    pub notes: Vec<String>,
    /// To be notified where Linux's routes must be read again.
    pub reread: Arc<Notify>,
    pub started: Instant,
}

/// An interface that the programs run on.
#[derive(Clone, Debug)]
pub struct Port {
    /// The name it was given by; it may be renamed or go away.
    pub name: String,
    /// Index of its counters.
    pub slot: u32,
    pub mode: AttachedMode,
}

pub struct Engine {
    pub(super) routing: Routing<Tables>,
    pub dataplane: Dataplane,
    pub(super) requests: Requests,
    generic: Generic,
    /// By interface index.
    pub ports: BTreeMap<u32, Port>,
    pub facts: Facts,
    /// What XDP would bypass.
    pub stops: Stops,
    probes: Probes,
    pub(super) forwarding: Forwarding,
    pub(super) audited: Audited,
}

impl Engine {
    pub fn new(
        routing: Routing<Tables>,
        dataplane: Dataplane,
        (requests, generic): (Requests, Generic),
        ports: BTreeMap<u32, Port>,
        facts: Facts,
    ) -> Self {
        let (stops, probes, forwarding, audited) = Default::default();
        Self {
            routing,
            dataplane,
            requests,
            generic,
            ports,
            facts,
            stops,
            probes,
            forwarding,
            audited,
        }
    }

    /// Works until it is told to unload, or until `shutdown`. Gives back the maps, and whoever
    /// waits for their end.
    pub async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<Event>,
        mut findings: watch::Receiver<Vec<Finding>>,
        shutdown: CancellationToken,
    ) -> (Dataplane, Option<Reply<()>>) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_watched = true;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return (self.dataplane, None),
                _ = tick.tick() => {
                    self.renew_lease();
                    self.follow_abilities().await;
                    self.follow_sysctls();
                    self.audit_in_background(&mut events).await;
                    self.probes.refill();
                    self.confirm().await;
                }
                found = findings.changed(), if is_watched => {
                    is_watched = found.is_ok();
                    let found = findings.borrow_and_update().clone();
                    self.obey(if is_watched { found } else { unwatched() });
                }
                Some(event) = events.recv() => self.apply_with(event, &mut events).await,
                command = commands.recv() => match command {
                    Some(Command::Unload(reply)) => return (self.dataplane, Some(reply)),
                    Some(command) => self.command(command, &mut events).await,
                    None => return (self.dataplane, None),
                },
            }
        }
    }

    /// Puts off the moment from which, without a daemon, everything is passed up.
    pub fn renew_lease(&mut self) {
        if let Err(error) = self.routing.table_mut().renew_lease() {
            tracing::error!(%error, "cannot renew the lease: forwarding will stop when it ends");
        }
    }

    /// Asks what the ports can do: a driver may take redirected frames only while a program is
    /// attached, and a veth only while its peer polls. The kernel tells of changes too, on the
    /// netdev family; until that is followed, a change is seen a tick late.
    pub async fn follow_abilities(&mut self) {
        // The generic path sends like any other packet of the kernel's.
        let native = self.ports.values().any(|port| port.mode == AttachedMode::Native);
        let mut ports = Vec::with_capacity(self.ports.len());
        for ifindex in self.ports.keys() {
            // Kernels before 6.3 do not tell, and an interface that is gone has none.
            let Ok(Some(features)) = self.generic.xdp_features(*ifindex).await else { continue };
            let xmit = !native || features.ndo_xmit;
            ports.push((*ifindex, Abilities { xmit, frags: features.ndo_xmit_sg }));
        }
        if let Err(error) = self.routing.set_abilities(ports) {
            tracing::error!(%error, "cannot follow what the interfaces can do");
        }
    }

    fn follow_sysctls(&mut self) {
        if self.read_sysctls()
            && let Err(error) = self.describe_interfaces()
        {
            tracing::error!(%error, "cannot describe an interface to the programs");
        }
    }

    /// Whether some sysctl that decides about forwarding is another now.
    pub fn read_sysctls(&mut self) -> bool {
        let links = self.routing.rib().links();
        let names: Vec<&str> =
            self.ports.keys().filter_map(|it| Some(links.get(it)?.name.as_str())).collect();
        let now = Forwarding::read(Path::new("/proc"), &names);
        let is_news = now != self.forwarding;
        self.forwarding = now;
        if self.facts.routes == RouteSource::Kernel {
            for family in Family::ALL {
                let otherwise = self.forwarding.hashes_otherwise(family);
                if let Err(error) = self.routing.set_hashes_otherwise(family, otherwise) {
                    tracing::error!(%error, "cannot follow the kernel in everything");
                }
            }
        }
        is_news
    }

    /// Makes the programs know the interfaces as they are now.
    pub fn describe_interfaces(&mut self) -> io::Result<()> {
        for (ifindex, port) in &self.ports {
            let link = self.routing.rib().links().get(ifindex);
            match link.filter(|_| self.routing.rib().is_port(*ifindex)).and_then(describe) {
                Some((mac, flags)) => {
                    let flags = flags | self.sysctl_flags(*ifindex);
                    let interface = Interface { slot: port.slot, mac, flags };
                    self.dataplane.set_interface(*ifindex, interface)?;
                }
                None => self.dataplane.remove_interface(*ifindex),
            }
        }
        Ok(())
    }

    /// Routes that Linux does not know are forwarded by whether it forwards or not.
    fn sysctl_flags(&self, ifindex: u32) -> u16 {
        match self.routing.rib().links().get(&ifindex) {
            Some(link) if self.facts.routes == RouteSource::Kernel => {
                self.forwarding.flags(&link.name)
            }
            _ => 0,
        }
    }

    /// Takes in an event, and those that wait behind it.
    pub(super) async fn apply_with(&mut self, event: Event, events: &mut mpsc::Receiver<Event>) {
        let mut batch = vec![event];
        while batch.len() < BATCH_MAX
            && let Ok(event) = events.try_recv()
        {
            batch.push(event);
        }
        self.apply(batch).await;
    }

    async fn apply(&mut self, events: Vec<Event>) {
        let links_changed = events.iter().any(|event| {
            matches!(event, Event::Links(_) | Event::Link(_) | Event::LinkGone { .. })
        });
        let before: Vec<u32> = self.present().collect();
        if let Err(error) = self.routing.apply(events) {
            tracing::error!(%error, "cannot follow the kernel in everything");
        }
        if links_changed {
            for gone in before.into_iter().filter(|it| !self.routing.rib().links().contains_key(it))
            {
                tracing::warn!(interface = self.ports[&gone].name, "is gone: detached from it");
            }
            if let Err(error) = self.describe_interfaces() {
                tracing::error!(%error, "cannot describe an interface to the programs");
            }
        }
        self.confirm().await;
    }

    fn present(&self) -> impl Iterator<Item = u32> + '_ {
        self.ports.keys().copied().filter(|ifindex| self.routing.rib().is_port(*ifindex))
    }

    /// Stops the families whose packets would miss something, and no other.
    fn obey(&mut self, found: Vec<Finding>) {
        for news in self.stops.update(found) {
            match news {
                News::Stopped(sentence) => tracing::warn!("{sentence}"),
                News::GoesOn(sentence) | News::Bypassed(sentence) => tracing::info!("{sentence}"),
            }
        }
        for family in Family::ALL {
            let stops = self.stops.stops(family);
            self.routing.table_mut().set_filtered(family, stops);
        }
    }

    pub(super) async fn confirm(&mut self) {
        let due = self.probes.due(self.routing.unconfirmed(), Instant::now());
        for (ifindex, address) in due {
            if let Err(error) = self.requests.probe(ifindex, address).await {
                tracing::debug!(%address, %error, "cannot ask for a next hop");
            }
        }
    }

    async fn command(&mut self, command: Command, events: &mut mpsc::Receiver<Event>) {
        let follows = self.facts.routes == RouteSource::Kernel;
        // Whoever asked may have gone away meanwhile: that is no error.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Stats(reply) => drop(reply.send(self.snapshot().await)),
            Command::RouteAdd { route, existing, xdp_only, reply } => {
                // Linux has no next hops for single CPUs.
                let is_for_linux = follows && !xdp_only && route.cpus.is_none();
                let answer = if is_for_linux {
                    self.add_to_linux(&route, existing, events).await
                } else {
                    self.routing.add(route, existing)
                };
                self.confirm().await;
                drop(reply.send(answer));
            }
            Command::RouteLoad { routes, existing, xdp_only, reply } => {
                let count = routes.len() as u64;
                let answer = if follows && !xdp_only {
                    Err(Refusal::new(LOAD_REFUSED))
                } else {
                    self.routing.load(routes, existing)
                };
                self.confirm().await;
                drop(reply.send(answer));
                trim_after(count);
            }
            Command::RouteDelete { selector, reply } => {
                let answer = if self.routing.has_own(&selector) || !follows {
                    self.routing.delete(&selector)
                } else {
                    self.delete_from_linux(&selector, events).await
                };
                drop(reply.send(answer));
            }
            Command::RouteFlush { selector, reply } => {
                let mut answer = self.routing.flush(&selector);
                if let (true, Ok(own)) = (follows, &answer) {
                    let own = *own;
                    answer = self.flush_from_linux(&selector, events).await.map(|it| it + own);
                }
                let count = answer.as_ref().map_or(0, |count| *count);
                drop(reply.send(answer));
                trim_after(count);
            }
            Command::RouteShow { selector, after, reply } => {
                drop(reply.send(Ok(self.routing.page(&selector, after))));
            }
            Command::RouteGet { destination, reply } => {
                drop(reply.send(Ok(self.routing.get(destination))));
            }
            Command::Audit { after, reply } => {
                drop(reply.send(self.audit(after, events).await));
            }
            Command::Neighbours(reply) => drop(reply.send(Ok(self.routing.neighbours()))),
            Command::Unload(_) => {} // Ends the loop above.
        }
    }
}

/// Where nobody looks for rules any more there may be some.
fn unwatched() -> Vec<Finding> {
    let finding = |kind| Finding {
        kind,
        families: Families::BOTH,
        what: "rules that nobody looks for any more".to_owned(),
        remedy: "restart the daemon".to_owned(),
    };
    Kind::ALL.map(finding).into()
}

/// After a change of so many routes the heap may hold much that nobody uses any more.
fn trim_after(routes: u64) {
    if routes >= ROUTES_TO_TRIM {
        trim_heap();
    }
}

/// What the programs need to know of a link; `None` where it has no Ethernet address.
fn describe(link: &Link) -> Option<([u8; 6], u16)> {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let flags = flag(link.mtu < IPV6_MTU_MIN, INTERFACE_NO_IPV6)
        | flag(link.controller.is_some(), INTERFACE_ENSLAVED);
    Some((link.mac?, flags))
}

//! The engine at work: one task that owns all maps.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    time::{Duration, Instant},
};

use forwarder_common::abi::{INTERFACE_NO_IPV6, Interface};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{Command, InterfaceStatus, Refusal, Reply, Status, probes::Probes};
use crate::{
    dataplane::{AttachedMode, Dataplane, Tables, trim_heap},
    netlink::{
        Generic, Requests,
        event::{Event, Link},
    },
    paths::Paths,
    prefix::Family,
    preflight::forwarding::forwarding_notes,
    rib::{Abilities, IPV6_MTU_MIN},
    routing::{Routing, mac_text},
    snapshot::{Count, InterfaceCounters, RouteCounters, Snapshot},
};

/// Events that are taken in at once: one reconciliation serves them all.
const BATCH_MAX: usize = 4096;
/// How often the lease is renewed and silent next hops are asked again.
const TICK: Duration = Duration::from_secs(1);
/// A change of as many routes is worth giving memory back.
const ROUTES_TO_TRIM: u64 = 1 << 16;
/// The counters of frames that no interface could be charged with.
const SLOT_UNKNOWN: u32 = 0;

/// What does not change while the engine runs.
#[derive(Debug)]
pub struct Facts {
    pub name: String,
    pub kernel: String,
    pub steering: String,
    pub metrics: Option<String>,
    pub metrics_routes: usize,
    pub routes4_max: u32,
    pub routes6_max: u32,
    pub cpus_online: Vec<u32>,
    pub notes: Vec<String>,
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
    routing: Routing<Tables>,
    pub dataplane: Dataplane,
    requests: Requests,
    generic: Generic,
    /// By interface index.
    pub ports: BTreeMap<u32, Port>,
    pub facts: Facts,
    probes: Probes,
}

impl Engine {
    pub fn new(
        routing: Routing<Tables>,
        dataplane: Dataplane,
        (requests, generic): (Requests, Generic),
        ports: BTreeMap<u32, Port>,
        facts: Facts,
    ) -> Self {
        Self { routing, dataplane, requests, generic, ports, facts, probes: Probes::default() }
    }

    /// Works until it is told to unload, or until `shutdown`. Gives back the maps, and whoever
    /// waits for their end.
    pub async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<Event>,
        shutdown: CancellationToken,
    ) -> (Dataplane, Option<Reply<()>>) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return (self.dataplane, None),
                _ = tick.tick() => {
                    self.renew_lease();
                    self.follow_abilities().await;
                    self.probes.refill();
                    self.confirm().await;
                }
                Some(event) = events.recv() => {
                    let mut batch = vec![event];
                    while batch.len() < BATCH_MAX && let Ok(event) = events.try_recv() {
                        batch.push(event);
                    }
                    self.apply(batch).await;
                }
                command = commands.recv() => match command {
                    Some(Command::Unload(reply)) => return (self.dataplane, Some(reply)),
                    Some(command) => self.command(command).await,
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

    /// Makes the programs know the interfaces as they are now.
    pub fn describe_interfaces(&mut self) -> io::Result<()> {
        for (ifindex, port) in &self.ports {
            let link = self.routing.rib().links().get(ifindex);
            match link.filter(|_| self.routing.rib().is_port(*ifindex)).and_then(describe) {
                Some((mac, flags)) => {
                    let interface = Interface { slot: port.slot, mac, flags };
                    self.dataplane.set_interface(*ifindex, interface)?;
                }
                None => self.dataplane.remove_interface(*ifindex),
            }
        }
        Ok(())
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

    async fn confirm(&mut self) {
        let due = self.probes.due(self.routing.unconfirmed(), Instant::now());
        for (ifindex, address) in due {
            if let Err(error) = self.requests.probe(ifindex, address).await {
                tracing::debug!(%address, %error, "cannot ask for a next hop");
            }
        }
    }

    async fn command(&mut self, command: Command) {
        // Whoever asked may have gone away meanwhile: that is no error.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(self.status()))),
            Command::Stats(reply) => drop(reply.send(self.snapshot())),
            Command::RouteAdd { route, existing, reply } => {
                let answer = self.routing.add(route, existing);
                self.confirm().await;
                drop(reply.send(answer));
            }
            Command::RouteLoad { routes, existing, reply } => {
                let count = routes.len() as u64;
                let answer = self.routing.load(routes, existing);
                self.confirm().await;
                drop(reply.send(answer));
                trim_after(count);
            }
            Command::RouteDelete { selector, reply } => {
                drop(reply.send(self.routing.delete(&selector)));
            }
            Command::RouteFlush { selector, reply } => {
                let answer = self.routing.flush(&selector);
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
            Command::Neighbours(reply) => drop(reply.send(Ok(self.routing.neighbours()))),
            Command::Unload(_) => {} // Ends the loop above.
        }
    }

    /// What `forwarder status` tells.
    pub fn status(&self) -> Status {
        let facts = &self.facts;
        let counts = self.routing.counts();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: facts.name.clone(),
            pid: std::process::id(),
            uptime_ms: self.uptime_ms(),
            kernel: facts.kernel.clone(),
            interfaces: self
                .ports
                .iter()
                .map(|(ifindex, port)| self.port(*ifindex, port))
                .collect(),
            steering: facts.steering.clone(),
            routes4: counts.routes4,
            routes6: counts.routes6,
            routes_waiting: self.routing.waiting(),
            routes4_max: facts.routes4_max.into(),
            routes6_max: facts.routes6_max.into(),
            metrics: facts.metrics.clone(),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let names: Vec<String> =
            self.ports.iter().map(|(ifindex, port)| self.port(*ifindex, port).name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut notes = self.facts.notes.clone();
        let blind = Family::ALL.into_iter().filter(|family| self.routing.is_blind(*family));
        notes.extend(blind.map(|family| {
            format!(
                "no {family} is forwarded in XDP: an address of this host could not be written to \
                 the maps (too many?), and its packets might be forwarded"
            )
        }));
        notes.extend(forwarding_notes(Path::new("/proc"), &names));
        notes
    }

    fn port(&self, ifindex: u32, port: &Port) -> InterfaceStatus {
        let rib = self.routing.rib();
        let link = rib.links().get(&ifindex).filter(|_| rib.is_port(ifindex));
        InterfaceStatus {
            name: link.map_or_else(|| port.name.clone(), |link| link.name.clone()),
            ifindex,
            mode: port.mode.name().to_owned(),
            mac: link.and_then(|link| link.mac).map_or_else(String::new, mac_text),
            mtu: link.map_or(0, |link| link.mtu),
            up: link.is_some_and(|link| link.up),
            carrier: link.is_some_and(|link| link.carrier),
        }
    }

    fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let unreadable = |error| Refusal::new(format!("cannot read the counters: {error}"));
        let unknown = [(SLOT_UNKNOWN, 0, "unknown".to_owned())];
        let known = self
            .ports
            .iter()
            .map(|(ifindex, port)| (port.slot, *ifindex, self.port(*ifindex, port).name));
        let mut interfaces = Vec::with_capacity(self.ports.len() + 1);
        for (slot, ifindex, name) in known.chain(unknown) {
            let (ingress, worker) = self.dataplane.counters(slot).map_err(unreadable)?;
            interfaces.push(InterfaceCounters { name, ifindex, ingress, worker });
        }
        Ok(Snapshot {
            uptime_ms: self.uptime_ms(),
            cpus_online: self.facts.cpus_online.clone(),
            interfaces,
            routes: self.busiest_routes().map_err(unreadable)?,
        })
    }

    fn busiest_routes(&self) -> io::Result<Vec<RouteCounters>> {
        if self.facts.metrics_routes == 0 {
            return Ok(Vec::new());
        }
        let mut routes = Vec::new();
        for (route, paths, _) in self.routing.installed().sets() {
            let cpus = self.dataplane.route_counters(route)?;
            routes.push((cpus.iter().copied().sum::<Count>().packets, paths, cpus));
        }
        routes.sort_by(|a: &(u64, &Paths, _), b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        routes.truncate(self.facts.metrics_routes);
        let counters = |(_, paths, cpus): (u64, &Paths, _)| RouteCounters {
            next_hops: self.routing.next_hops(&paths.all()),
            cpus,
        };
        Ok(routes.into_iter().map(counters).collect())
    }

    fn uptime_ms(&self) -> u64 {
        u64::try_from(self.facts.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// After a change of so many routes the heap may hold much that nobody uses any more.
fn trim_after(routes: u64) {
    if routes >= ROUTES_TO_TRIM {
        trim_heap();
    }
}

/// What the programs need to know of a link; `None` where it has no Ethernet address.
fn describe(link: &Link) -> Option<([u8; 6], u16)> {
    let flags = if link.mtu < IPV6_MTU_MIN { INTERFACE_NO_IPV6 } else { 0 };
    Some((link.mac?, flags))
}

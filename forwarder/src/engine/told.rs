//! What the engine tells whoever asks: how it stands, and what was counted.

use std::io;

use super::{
    InterfaceStatus, Refusal, Status,
    run::{Engine, Port},
};
use crate::{
    dataplane::{AttachedMode, Reading},
    paths::Paths,
    prefix::Family,
    routing::mac_text,
    snapshot::{Count, InterfaceCounters, NicCounters, RouteCounters, Snapshot},
    tracepoints::Missing,
};

/// The counters of frames that no interface could be charged with.
const SLOT_UNKNOWN: u32 = 0;

impl Engine {
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
            audited: self.audited.checked,
            audit_differences: self.audited.differences,
            routes4_max: facts.routes4_max.into(),
            routes6_max: facts.routes6_max.into(),
            metrics: facts.metrics.clone(),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.facts.notes.clone();
        notes.extend(self.dataplane.missing_tracepoints().iter().map(Missing::note));
        let blind = Family::ALL.into_iter().filter(|family| self.routing.is_blind(*family));
        notes.extend(blind.map(|family| {
            format!(
                "no {family} is forwarded in XDP: an address of this host could not be written to \
                 the maps (too many?), and its packets might be forwarded"
            )
        }));
        for family in Family::ALL {
            let rules = self.routing.rib().mirror().rules(family);
            notes.extend(rules.map(|rule| {
                format!(
                    "no {family} is forwarded in XDP: the rule of priority {} may send packets \
                     another way than the main table ({})",
                    rule.priority, rule.text
                )
            }));
        }
        notes.extend(self.stops.notes());
        notes.extend(self.forwarding.notes(self.facts.routes));
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

    pub(super) async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let unreadable = |error| Refusal::new(format!("cannot read the counters: {error}"));
        let unknown = [(SLOT_UNKNOWN, 0, "unknown".to_owned())];
        let known = self
            .ports
            .iter()
            .map(|(ifindex, port)| (port.slot, *ifindex, self.port(*ifindex, port).name));
        let known = known.chain(unknown).collect::<Vec<_>>();
        let slots: Vec<u32> = known.iter().map(|(slot, ..)| *slot).collect();
        let readings = self.dataplane.counters(&slots).map_err(unreadable)?;
        let generic = |ifindex: &u32| {
            self.ports.get(ifindex).is_some_and(|port| port.mode == AttachedMode::Generic)
        };
        let mut interfaces = Vec::with_capacity(known.len());
        for ((_, ifindex, name), reading) in known.into_iter().zip(readings.interfaces) {
            let Reading { ingress, worker, after } = reading;
            let generic = generic(&ifindex);
            let nic = self.nic_counters(ifindex).await;
            interfaces.push(InterfaceCounters {
                name,
                ifindex,
                generic,
                ingress,
                worker,
                after,
                nic,
            });
        }
        Ok(Snapshot {
            uptime_ms: self.uptime_ms(),
            cpus_online: self.facts.cpus_online.clone(),
            interfaces,
            routes: self.busiest_routes().map_err(unreadable)?,
            enqueued: readings.enqueued,
            dequeued: readings.dequeued,
            missing: self.dataplane.missing_tracepoints().to_vec(),
        })
    }

    /// Of an interface that is there.
    async fn nic_counters(&self, ifindex: u32) -> Option<NicCounters> {
        if !self.routing.rib().is_port(ifindex) {
            return None;
        }
        self.requests.nic_counters(ifindex).await.ok().flatten()
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

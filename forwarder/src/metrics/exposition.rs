//! Counters and status as Prometheus text. Which families there are, and why: ADR 0003 and 0020.

mod after;

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    time::Duration,
};

use forwarder_common::{abi::ABI_VERSION, verdict::Reason};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet, prometheus_text},
    metrics::MetricType,
    registry::Registry,
};

use crate::{
    engine::Status,
    route::NextHop,
    snapshot::{After, Count, CpuCounters, InterfaceCounters, Snapshot, Stage},
};

pub use prometheus_text::CONTENT_TYPE;

/// Reasons that are there from the start, at zero: every router sees them, and so a sum over the
/// family always exists. Any other reason appears once it has happened on the interface.
const REASONS_ALWAYS: [Reason; 3] = [Reason::NotIp, Reason::Local, Reason::NoRoute];

/// The answer to one scrape.
///
/// # Errors
///
/// Only what the encoder itself refuses.
pub fn text(snapshot: Snapshot, status: Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { snapshot, status }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    snapshot: Snapshot,
    status: Status,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.infos(&mut encoder)?;
        self.gauges(&mut encoder)?;
        self.interfaces(&mut encoder)?;
        after::encode(&mut encoder, &self.snapshot, self.steers())?;
        self.next_hops(&mut encoder)
    }
}

impl Scrape {
    fn infos(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let abi = ABI_VERSION.to_string();
        let build = [
            ("version", self.status.version.as_str()),
            ("kernel", &self.status.kernel),
            ("abi", &abi),
        ];
        let help = "Versions of the forwarder, of the kernel, and of the maps between them.";
        encoder
            .encode_descriptor("forwarder_build", help, None, MetricType::Info)?
            .encode_info(&build)?;
        let interfaces = self.status.interfaces.iter();
        let interfaces: BTreeMap<_, _> =
            interfaces.map(|interface| (interface.name.as_str(), interface)).collect();
        let help = "Interfaces that are served, and how the program is attached.";
        let mut family =
            encoder.encode_descriptor("forwarder_interface", help, None, MetricType::Info)?;
        interfaces.iter().try_for_each(|(name, interface)| {
            let ifindex = interface.ifindex.to_string();
            family.encode_info(&[
                ("interface", *name),
                ("ifindex", &ifindex),
                ("mode", &interface.mode),
            ])
        })
    }

    fn gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.status;
        let families = |ipv4, ipv6| [([("family", "ipv4")], ipv4), ([("family", "ipv6")], ipv6)];
        let help = "Routes that are installed.";
        let routes = families(status.routes4, status.routes6);
        gauges(encoder, "forwarder_routes", help, &routes)?;
        let help = "Routes for which there is room.";
        let routes = families(status.routes4_max, status.routes6_max);
        gauges(encoder, "forwarder_routes_max", help, &routes)?;
        let help = "Routes that do not forward for now, for want of a neighbour or an egress.";
        gauges(encoder, "forwarder_routes_waiting", help, &[(NONE, status.routes_waiting)])?;
        let help = "Time since the daemon started.";
        let uptime = Duration::from_millis(status.uptime_ms).as_secs_f64();
        gauges(encoder, "forwarder_uptime_seconds", help, &[(NONE, uptime)])
    }

    fn interfaces(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let interfaces = merged(&self.snapshot);
        let mut all = Samples::default();
        let steers = self.steers();
        for (name, interface) in &interfaces {
            for stage in Stage::ALL.into_iter().filter(|stage| *stage == Stage::Ingress || steers) {
                let sum = interface.sum(stage);
                let reasons: Vec<_> = Reason::ALL
                    .into_iter()
                    .filter(|reason| {
                        REASONS_ALWAYS.contains(reason) || !sum.passed(*reason).is_zero()
                    })
                    .collect();
                for cpu in self.snapshot.cpus_shown(interface) {
                    all.take(name, cpu, stage, &interface.on_cpu(stage, cpu), &reasons);
                }
            }
        }
        all.encode(encoder)
    }

    /// Whether frames are steered, or were.
    fn steers(&self) -> bool {
        let was = |it: &InterfaceCounters| !it.sum(Stage::Worker).is_zero();
        self.status.steering != "off" || self.snapshot.interfaces.iter().any(was)
    }

    fn next_hops(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut next_hops = BTreeMap::<_, Count>::new();
        for route in &self.snapshot.routes {
            // Sets that differ in weights, or by CPU, alone are one to the labels.
            let via = |it: &NextHop| it.via.map_or("connected".to_owned(), |via| via.to_string());
            let dev = |it: &NextHop| {
                it.dev.clone().unwrap_or_else(|| InterfaceCounters::UNKNOWN.to_owned())
            };
            let joined = |label: &dyn Fn(&NextHop) -> String| {
                route.next_hops.iter().map(label).collect::<Vec<_>>().join(",")
            };
            let (via, interface) = (joined(&via), joined(&dev));
            let sum = next_hops.entry((via, interface)).or_default();
            *sum += route.cpus.iter().copied().sum();
        }
        let samples: Vec<_> = next_hops
            .iter()
            .map(|((via, interface), count)| {
                ([("via", via.as_str()), ("interface", interface.as_str())], *count)
            })
            .collect();
        counters(encoder, "forwarder_next_hop", "that left by this next hop", &samples)
    }
}

/// Interfaces by name: should two bear the same one, their counts are added, since a sample that is
/// there twice makes Prometheus refuse the scrape.
fn merged(snapshot: &Snapshot) -> BTreeMap<&str, InterfaceCounters> {
    let mut merged = BTreeMap::<_, InterfaceCounters>::new();
    for interface in snapshot.interfaces_shown() {
        match merged.entry(interface.name.as_str()) {
            Entry::Vacant(entry) => {
                entry.insert(interface.clone());
            }
            Entry::Occupied(mut entry) => {
                add_each(&mut entry.get_mut().ingress, &interface.ingress);
                add_each(&mut entry.get_mut().worker, &interface.worker);
                let after = &mut entry.get_mut().after;
                after.resize(after.len().max(interface.after.len()), After::default());
                after.iter_mut().zip(&interface.after).for_each(|(sum, after)| sum.add(after));
            }
        }
    }
    merged
}

fn add_each(sums: &mut Vec<CpuCounters>, cpus: &[CpuCounters]) {
    sums.resize(sums.len().max(cpus.len()), CpuCounters::default());
    for (sum, counters) in sums.iter_mut().zip(cpus) {
        sum.add(counters);
    }
}

/// Labels: their names and values.
type Labels<'a, const N: usize> = [(&'static str, Cow<'a, str>); N];

/// The samples of interfaces, sorted into their families.
#[derive(Default)]
struct Samples<'a> {
    rx: Vec<(Labels<'a, 2>, Count)>,
    worker_rx: Vec<(Labels<'a, 2>, Count)>,
    steered: Vec<(Labels<'a, 2>, Count)>,
    redirected: Vec<(Labels<'a, 3>, Count)>,
    passed: Vec<(Labels<'a, 4>, Count)>,
}

impl<'a> Samples<'a> {
    fn take(
        &mut self,
        interface: &'a str,
        cpu: u32,
        stage: Stage,
        counters: &CpuCounters,
        reasons: &[Reason],
    ) {
        let on = [("interface", interface.into()), ("cpu", cpu.to_string().into())];
        let at = [on[0].clone(), on[1].clone(), ("stage", stage.label().into())];
        self.redirected.push((at.clone(), counters.redirected()));
        self.passed.extend(reasons.iter().map(|&reason| {
            let [interface, cpu, stage] = at.clone();
            let labels = [interface, cpu, stage, ("reason", reason.label().into())];
            (labels, counters.passed(reason))
        }));
        match stage {
            Stage::Ingress => {
                self.rx.push((on.clone(), counters.rx()));
                self.steered.push((on, counters.steered()));
            }
            Stage::Worker => self.worker_rx.push((on, counters.rx())),
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "that came in by this interface, on the CPU that the NIC chose";
        counters(encoder, "forwarder_rx", help, &self.rx)?;
        let help = "that came in by this interface and left by another";
        counters(encoder, "forwarder_redirected", help, &self.redirected)?;
        let help = "that came in by this interface and were left to Linux, by reason";
        counters(encoder, "forwarder_passed", help, &self.passed)?;
        let help = "that were sent from this CPU to a worker";
        counters(encoder, "forwarder_steered", help, &self.steered)?;
        let help = "that reached this CPU as a worker";
        counters(encoder, "forwarder_worker_rx", help, &self.worker_rx)
    }
}

/// Labels of a family that has one sample.
const NONE: [(&str, &str); 0] = [];

fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(L, Count)],
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let packets = (format!("{name}_packets"), format!("Frames {help}."));
    let bytes = (format!("{name}_bytes"), format!("Bytes of frames {help}."));
    let mut one = |(name, help): (String, String), value: fn(&Count) -> u64| {
        let mut family = encoder.encode_descriptor(&name, &help, None, MetricType::Counter)?;
        samples.iter().try_for_each(|(labels, count)| {
            let mut sample = family.encode_family(labels)?;
            sample.encode_counter::<NoLabelSet, u64, u64>(&value(count), None)
        })
    };
    one(packets, |count| count.packets)?;
    one(bytes, |count| count.bytes)
}

fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(L, V)],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    samples.iter().try_for_each(|(labels, value)| family.encode_family(labels)?.encode_gauge(value))
}

#[cfg(test)]
mod tests;

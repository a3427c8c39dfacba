//! What became of frames after the programs had returned, and what equations lack.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use forwarder_common::loss::Target;
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

use super::{Labels, gauges, merged};
use crate::{account::unaccounted, snapshot::Snapshot, tracepoints::Tracepoint};

/// All families of this kind. A loss appears on the CPU and interface where it has happened; what
/// was sent is there from the start.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    snapshot: &Snapshot,
    steers: bool,
) -> fmt::Result {
    transmits(encoder, snapshot)?;
    redirect_losses(encoder, snapshot)?;
    if steers {
        queues(encoder, snapshot)?;
    }
    let help = "Frames by which the two sides of an equation of ARCHITECTURE.md differ: zero at rest, and on their way otherwise.";
    let differences: Vec<_> = unaccounted(snapshot)
        .into_iter()
        .map(|(equation, frames)| ([("equation", equation.label())], frames))
        .collect();
    gauges(encoder, "forwarder_unaccounted_packets", help, &differences)?;
    let help = "Whether a tracepoint is followed. Without it what it tells of is not counted.";
    let is_followed = |it: Tracepoint| snapshot.missing.iter().all(|no| no.tracepoint != it);
    let followed =
        Tracepoint::ALL.map(|it| ([("tracepoint", it.name())], u64::from(is_followed(it))));
    gauges(encoder, "forwarder_tracepoint_followed", help, &followed)
}

fn transmits(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let interfaces = merged(snapshot);
    let mut sent = Vec::new();
    let mut unsent = Vec::new();
    for (name, interface) in &interfaces {
        for cpu in snapshot.cpus_shown(interface) {
            let after = interface.after_on_cpu(cpu);
            let on = [("interface", Cow::from(*name)), ("cpu", cpu.to_string().into())];
            sent.push((on.clone(), after.sent));
            unsent.extend(after.unsent.some().map(|(loss, frames)| {
                let [interface, cpu] = on.clone();
                ([interface, cpu, ("reason", loss.label().into())], frames)
            }));
        }
    }
    let help = "Frames that left by this interface; not told in generic mode.";
    packets(encoder, "forwarder_transmitted_packets", help, &sent)?;
    let help = "Frames that were to leave by this interface, and that its driver did not send.";
    packets(encoder, "forwarder_transmit_lost_packets", help, &unsent)
}

fn redirect_losses(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let interfaces = merged(snapshot);
    let mut lost: Vec<(Labels<'_, 4>, u64)> = Vec::new();
    for (name, interface) in &interfaces {
        for cpu in snapshot.cpus_shown(interface) {
            let after = interface.after_on_cpu(cpu);
            for target in Target::ALL {
                lost.extend(after.lost_to(target).some().map(|(loss, frames)| {
                    let labels = [
                        ("interface", Cow::from(*name)),
                        ("cpu", cpu.to_string().into()),
                        ("target", target.label().into()),
                        ("reason", loss.label().into()),
                    ];
                    (labels, frames)
                }));
            }
        }
    }
    let help = "Frames that came in by this interface, and that the kernel did not take for a port or a CPU.";
    packets(encoder, "forwarder_redirect_lost_packets", help, &lost)
}

/// By one CPU each: all pairs would be too many.
fn queues(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let mut enqueued: BTreeMap<u32, u64> = cpus(snapshot);
    let mut dropped = cpus(snapshot);
    for queue in &snapshot.enqueued {
        *enqueued.entry(queue.cpu).or_default() += queue.frames;
        *dropped.entry(queue.worker).or_default() += queue.dropped;
    }
    let (mut dequeued, mut lost) = (cpus(snapshot), BTreeMap::new());
    for queue in &snapshot.dequeued {
        *dequeued.entry(queue.cpu).or_default() += queue.frames;
        if queue.lost > 0 {
            *lost.entry(queue.cpu).or_default() += queue.lost;
        }
    }
    let families = [
        (
            "forwarder_enqueued_packets",
            "Frames that this CPU gave to the queues of workers.",
            enqueued,
        ),
        (
            "forwarder_queue_lost_packets",
            "Frames that the queue of this worker had no room for.",
            dropped,
        ),
        ("forwarder_dequeued_packets", "Frames that this worker took out of its queue.", dequeued),
        (
            "forwarder_worker_lost_packets",
            "Frames that this worker left to Linux, and that there was no memory for.",
            lost,
        ),
    ];
    families.into_iter().try_for_each(|(name, help, by_cpu)| {
        let samples: Vec<_> =
            by_cpu.into_iter().map(|(cpu, frames)| ([("cpu", cpu.to_string())], frames)).collect();
        packets(encoder, name, help, &samples)
    })
}

fn cpus(snapshot: &Snapshot) -> BTreeMap<u32, u64> {
    snapshot.cpus_online.iter().map(|cpu| (*cpu, 0)).collect()
}

fn packets<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(L, u64)],
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    samples.iter().try_for_each(|(labels, frames)| {
        let mut sample = family.encode_family(labels)?;
        sample.encode_counter::<NoLabelSet, u64, u64>(frames, None)
    })
}

//! From what was asked for to programs that are attached.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use nix::sys::utsname::uname;
use tokio::sync::mpsc;

use super::seed;
use crate::{
    bypass::stops::Stops,
    config::{Config, RouteSource, Steering},
    dataplane::{AttachError, Attached, AttachedMode, Dataplane, Options, Pins, Tables},
    engine::run::{Engine, Facts, Port},
    netlink::{Generic, Requests, event::Event},
    prefix::Family,
    preflight::{Report, attach::refusal},
    rib::{Abilities, Rib},
    routing::{Limits, Routing, SETS_MAX},
};

/// Programs loaded and maps filled as the kernel is now; nothing attached.
pub(super) async fn prepare(
    object: &[u8],
    config: &Config,
    report: &Report,
    facts: Facts,
    events: &mut mpsc::Receiver<Event>,
) -> Result<Engine> {
    let options = Options {
        routes4_max: config.routes4_max,
        routes6_max: config.routes6_max,
        steering: config.steering.clone(),
        queue_size: config.queue_size,
        count_routes: config.metrics_routes > 0,
        cpus_possible: report.cpus.possible.clone(),
        hash_seed: seed::of(&seed::machine(Path::new("/")), &facts.name),
        grace: Duration::from_secs(config.grace_s.into()),
    };
    let (dataplane, tables) = Dataplane::load(object, &options)?;
    // Asked again once the programs are attached: many drivers can only then.
    let unknown = Abilities { xmit: true, frags: false };
    let abilities = report.interfaces.iter().map(|facts| (facts.ifindex(), unknown)).collect();
    let limits = Limits {
        routes4: config.routes4_max,
        routes6: config.routes6_max,
        sets: SETS_MAX,
        cpus: report.cpus.possible.clone(),
    };
    let mut routing = Routing::new(Rib::new(abilities), tables, limits)?;
    note_first_lists(events, &mut routing, config.routes).await?;
    let followed = routing.catch_up();
    match config.routes {
        // What of it cannot be written is left to Linux, and `status` says so.
        RouteSource::Kernel => {
            if let Err(error) = followed {
                tracing::error!(%error, "cannot take over all of Linux's routes");
            }
        }
        RouteSource::Static => followed?,
    }

    let slots = report.interfaces.iter().zip(1..);
    let ports = slots.map(|(facts, slot)| {
        let mode = AttachedMode::Native;
        (facts.ifindex(), Port { name: facts.name().to_owned(), slot, mode })
    });
    let sockets = (Requests::open()?, Generic::open()?);
    let mut engine = Engine::new(routing, dataplane, sockets, ports.collect(), facts);
    engine.read_sysctls();
    engine.stops = Stops::new(config.bypass.clone(), report.bypassed.clone());
    engine.describe_interfaces().context("cannot describe the interfaces to the programs")?;
    engine.renew_lease();
    Ok(engine)
}

/// Everything that the kernel has, once.
async fn note_first_lists(
    events: &mut mpsc::Receiver<Event>,
    routing: &mut Routing<Tables>,
    routes: RouteSource,
) -> Result<()> {
    loop {
        let event = events.recv().await.context("the kernel does not answer on netlink")?;
        // They come in this order.
        let is_last = match routes {
            RouteSource::Kernel => matches!(event, Event::RoutesEnd(Family::Inet6)),
            RouteSource::Static => matches!(event, Event::Neighbours(_)),
        };
        routing.note(event);
        if is_last {
            return Ok(());
        }
    }
}

/// Attaches to all interfaces or, after an error, to none.
pub(super) async fn attach(
    engine: &mut Engine,
    config: &Config,
    report: &Report,
    pins: Option<&Pins>,
) -> Result<()> {
    let interfaces: Vec<(u32, String)> =
        report.interfaces.iter().map(|facts| (facts.ifindex(), facts.name().to_owned())).collect();
    let attached = match engine.dataplane.attach(&interfaces, config.mode, pins) {
        Ok(attached) => attached,
        Err(error) => {
            if let Some(pins) = pins {
                pins.remove_folder().context("cannot remove the folder of pins")?;
            }
            return Err(explain(error, report));
        }
    };
    for attached in attached {
        let Some(port) = engine.ports.get_mut(&attached.ifindex) else { continue };
        port.mode = attached.mode;
        engine.facts.notes.extend(fallback_note(&attached, report));
    }
    let is_generic = engine.ports.values().any(|port| port.mode == AttachedMode::Generic);
    if is_generic && config.steering != Steering::Off {
        let note = generic_steering_note(&engine.facts.kernel);
        engine.facts.notes.extend(note);
    }
    engine.follow_abilities().await;
    Ok(())
}

fn explain(error: AttachError, report: &Report) -> anyhow::Error {
    match &error {
        AttachError::Refused { ifindex, mode, error: cause, .. } => {
            match reason(report, *ifindex, *mode, cause) {
                Some(reason) => anyhow!(reason),
                None => error.into(),
            }
        }
        _ => error.into(),
    }
}

fn fallback_note(attached: &Attached, report: &Report) -> Option<String> {
    let cause = attached.fallback.as_ref()?;
    let native = AttachedMode::Native;
    let reason = reason(report, attached.ifindex, native, cause).unwrap_or(cause.to_string());
    Some(format!("{reason}; it runs in generic mode instead, which is several times slower"))
}

fn reason(report: &Report, ifindex: u32, mode: AttachedMode, cause: &io::Error) -> Option<String> {
    let facts = report.interfaces.iter().find(|facts| facts.ifindex() == ifindex)?;
    Some(refusal(cause.raw_os_error()?, mode == AttachedMode::Native, facts))
}

pub(super) fn facts(
    config: &Config,
    report: &Report,
    name: String,
    metrics: Option<String>,
    started: Instant,
) -> Facts {
    Facts {
        name,
        kernel: kernel_release(),
        steering: match &config.steering {
            Steering::Off => "off".to_owned(),
            Steering::Cpus(cpus) => {
                let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
                format!("cpus={}", cpus.join(","))
            }
        },
        metrics,
        metrics_routes: config.metrics_routes as usize,
        routes: config.routes,
        routes4_max: config.routes4_max,
        routes6_max: config.routes6_max,
        cpus_online: report.cpus.online.clone(),
        notes: Vec::new(),
        reread: Arc::default(),
        started,
    }
}

fn kernel_release() -> String {
    uname().map_or_else(|_| "?".to_owned(), |name| name.release().to_string_lossy().into_owned())
}

/// Older kernels end a batch of steered frames after the first that the worker redirects
/// (`cpu_map_bpf_prog_run_skb`); docs/kernels.md says where that was seen.
fn generic_steering_note(kernel: &str) -> Option<String> {
    const GOOD: (u32, u32) = (6, 18);
    let mut numbers = kernel.split(['.', '-']).map_while(|number| number.parse().ok());
    let version: (u32, u32) = (numbers.next()?, numbers.next()?);
    (version < GOOD).then(|| {
        format!(
            "steering in generic mode leaves many frames to Linux on kernels up to 6.12 and maybe \
             later ones (this is {kernel}): use --steer off, or interfaces that can do native mode"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_told_by_their_release() {
        for release in ["6.1.0-57-cloud-amd64", "6.12.118+deb13-amd64", "6.17.3"] {
            let note = generic_steering_note(release).unwrap();
            assert!(note.contains(release), "{note}");
        }
        for release in ["6.18.44-fc-v782", "7.3.4", "6.18", "?", ""] {
            assert_eq!(generic_steering_note(release), None, "{release}");
        }
    }
}

//! Counters as JSON: `forwarder -j stats`.

use std::collections::BTreeSet;

use forwarder_common::verdict::Reason;
use serde_json::{Map, Value, json};

use crate::{
    account::unaccounted,
    route::NextHop,
    snapshot::{After, InterfaceCounters, LossCounts, NicCounters, RouteCounters, Snapshot, Stage},
};

/// The object that `-j` prints. A public format: members are added, but not renamed or removed.
///
/// ```json
/// {
///   "uptime_ms": 60000,                       // since the daemon started
///   "cpus_online": [0, 1],
///   "interfaces": [{
///     "name": "eth0", "ifindex": 2,           // "unknown", 0: what no interface can be charged with
///     "generic": false,
///     "nic": {"rx_missed": 0, ...},           // the interface's own losses; null: nobody tells
///     "cpus": [{                              // CPUs that are online, or that counted something
///       "cpu": 0,
///       "ingress": {                          // rx = redirected + steered + sum of passed
///         "rx": {"packets": 5, "bytes": 320},
///         "redirected": {"packets": 1, "bytes": 64},
///         "steered": {"packets": 2, "bytes": 128},
///         "passed": {"ttl_expired": {"packets": 2, "bytes": 128}}   // reasons that happened
///       },
///       "worker": {                           // rx = redirected + sum of passed
///         "rx": {"packets": 2, "bytes": 128},
///         "redirected": {"packets": 2, "bytes": 128},
///         "passed": {}
///       },
///       "after": {                            // what the kernel did then, in frames
///         "lost_to_port": {"no_xmit": 1},     // came in here, and was not taken for an interface
///         "lost_to_cpu": {},                  // ... or for a CPU
///         "sent": 3,                          // left by this interface; not told in generic mode
///         "unsent": {"ring_full": 1}          // its driver did not send
///       }
///     }]
///   }],
///   "queues": [{                              // of CPUs that frames were steered to
///     "cpu": 1, "dequeued": 2, "lost": 0,     // lost: passed, and Linux had no memory for it
///     "enqueued": [{"cpu": 0, "frames": 2, "dropped": 0}]           // by the CPU that steered
///   }],
///   "unaccounted": {"A": 0, "B": 0},          // by equation of ARCHITECTURE.md; zero at rest
///   "tracepoints_missing": [{"tracepoint": "xdp_exception", "why": "..."}],
///   "next_hops": [{                           // only with --metrics-routes; "via" null: connected
///     "via": "198.18.1.2", "dev": "eth1",     // several: "nexthops": [{"via", "dev", "weight"}]
///     "cpus": [{"cpu": 0, "packets": 3, "bytes": 192}]              // CPUs that counted something
///   }]
/// }
/// ```
///
/// With `-w`: one such object a look, with differences in place of totals, and beside them
/// `"elapsed_ms"` and `"per_second": {"rx", "redirected", "sent", "passed", "lost"}`.
pub fn json(snapshot: &Snapshot) -> Value {
    let interfaces = snapshot.interfaces_shown().map(|interface| {
        let cpus = snapshot.cpus_shown(interface);
        json!({
            "name": interface.name,
            "ifindex": interface.ifindex,
            "generic": interface.generic,
            "nic": interface.nic.map(nic),
            "cpus": cpus.into_iter().map(|cpu| json_cpu(interface, cpu)).collect::<Vec<_>>(),
        })
    });
    json!({
        "uptime_ms": snapshot.uptime_ms,
        "cpus_online": snapshot.cpus_online,
        "interfaces": interfaces.collect::<Vec<_>>(),
        "queues": queues(snapshot),
        "unaccounted": unaccounted(snapshot)
            .into_iter()
            .map(|(equation, frames)| (equation.label().to_owned(), frames.into()))
            .collect::<Map<_, _>>(),
        "tracepoints_missing": snapshot
            .missing
            .iter()
            .map(|it| json!({"tracepoint": it.tracepoint.name(), "why": it.why}))
            .collect::<Vec<_>>(),
        "next_hops": snapshot.routes.iter().map(json_next_hop).collect::<Vec<_>>(),
    })
}

fn json_cpu(interface: &InterfaceCounters, cpu: u32) -> Value {
    let mut object = Map::new();
    object.insert("cpu".to_owned(), cpu.into());
    for stage in Stage::ALL {
        let counters = interface.on_cpu(stage, cpu);
        let passed: Map<_, _> = Reason::ALL
            .into_iter()
            .map(|reason| (reason.label().to_owned(), counters.passed(reason)))
            .filter(|(_, count)| !count.is_zero())
            .map(|(label, count)| (label, json!(count)))
            .collect();
        let mut outcomes = json!({
            "rx": counters.rx(),
            "redirected": counters.redirected(),
            "passed": passed,
        });
        if stage == Stage::Ingress {
            outcomes["steered"] = json!(counters.steered());
        }
        object.insert(stage.label().to_owned(), outcomes);
    }
    object.insert("after".to_owned(), after(&interface.after_on_cpu(cpu)));
    Value::Object(object)
}

fn after(after: &After) -> Value {
    let losses = |counts: &LossCounts| {
        counts
            .some()
            .map(|(loss, frames)| (loss.label().to_owned(), frames.into()))
            .collect::<Map<_, _>>()
    };
    json!({
        "lost_to_port": losses(&after.lost_to_port),
        "lost_to_cpu": losses(&after.lost_to_cpu),
        "sent": after.sent,
        "unsent": losses(&after.unsent),
    })
}

fn nic(counters: NicCounters) -> Value {
    let all = NicCounters::MEANINGS.iter().zip(counters.to_array());
    all.map(|((name, _), frames)| ((*name).to_owned(), frames.into())).collect::<Map<_, _>>().into()
}

fn queues(snapshot: &Snapshot) -> Vec<Value> {
    let workers = snapshot.enqueued.iter().map(|it| it.worker);
    let cpus: BTreeSet<u32> = workers.chain(snapshot.dequeued.iter().map(|it| it.cpu)).collect();
    let queue = |cpu: u32| {
        let enqueued = snapshot.enqueued.iter().filter(|it| it.worker == cpu);
        let enqueued: Vec<_> = enqueued
            .map(|it| json!({"cpu": it.cpu, "frames": it.frames, "dropped": it.dropped}))
            .collect();
        let dequeued = snapshot.dequeued.iter().find(|it| it.cpu == cpu);
        let (frames, lost) = dequeued.map_or((0, 0), |it| (it.frames, it.lost));
        json!({"cpu": cpu, "dequeued": frames, "lost": lost, "enqueued": enqueued})
    };
    cpus.into_iter().map(queue).collect()
}

fn json_next_hop(route: &RouteCounters) -> Value {
    let busy = (0_u32..).zip(&route.cpus).filter(|(_, count)| !count.is_zero());
    let cpus: Vec<_> = busy
        .map(|(cpu, count)| json!({"cpu": cpu, "packets": count.packets, "bytes": count.bytes}))
        .collect();
    match &route.next_hops[..] {
        [NextHop { via, dev, .. }] => json!({"via": via, "dev": dev, "cpus": cpus}),
        several => {
            let one = |it: &NextHop| json!({"via": it.via, "dev": it.dev, "weight": it.weight});
            let next_hops: Vec<_> = several.iter().map(one).collect();
            json!({"nexthops": next_hops, "cpus": cpus})
        }
    }
}

//! More than a worker can take: its queue is short, and what it drops is counted.

use forwarder_common::loss::Loss;
use forwarder_tests::{
    footprint::Footprint,
    lab::Lab,
    require, skip,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
};

use super::{assert_nothing_is_unaccounted, ensure_received, frames, send};

/// So many that some find a queue of one frame full.
const FRAMES: u16 = 4000;

#[test]
fn native() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let (dropped, to_cpu) = overflow("native");
    assert_eq!(to_cpu, 0, "natively the redirect succeeds, and the queue drops");
    assert!(dropped > 0);
}

#[test]
fn generic() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let (dropped, to_cpu) = overflow("generic");
    assert_eq!(dropped, 0, "in generic mode the redirect fails, and the queue was given nothing");
    assert!(to_cpu > 0);
}

/// Frames that the queue dropped, and those that were not taken for the CPU. All others arrive.
fn overflow(mode: &str) -> (u64, u64) {
    let layout = Lab::router().forwarding(false).static_neighbours();
    let arguments = format!("--mode {mode} --steer cpus=1 --queue-size 1");
    let testbed = Testbed::with_routes(&layout, &arguments).unwrap();
    let footprint = Footprint::of(&testbed.lab.router, "eth0").unwrap();
    let frames = frames(0, 1, FRAMES);
    let flood = || send(&testbed.wires, &footprint, (0, 0), &frames);
    let ((), Counted { xdp, .. }) = testbed.counted(flood).unwrap();

    let count = u64::from(FRAMES);
    let eth0 = xdp.interface("eth0");
    let cpu0 = eth0.cpu(0);
    assert_eq!((cpu0.ingress.rx.packets, cpu0.ingress.steered.packets), (count, count));
    let (dropped, to_cpu) = match &xdp.queues[..] {
        [queue] => {
            assert_eq!((queue.cpu, queue.enqueued.len()), (1, 1), "{queue:?}");
            assert_eq!(queue.enqueued[0].cpu, 0, "{queue:?}");
            (queue.dropped(), cpu0.after.lost_to_cpu.get(Loss::QueueFull.label()).copied())
        }
        queues => panic!("{queues:?}"),
    };
    let to_cpu = to_cpu.unwrap_or_default();
    assert_eq!(xdp.lost(), dropped + to_cpu, "{xdp:#?}");
    let arrived = count - dropped - to_cpu;
    let worker = &eth0.cpu(1).worker;
    assert_eq!((worker.rx.packets, worker.redirected.packets), (arrived, arrived), "{xdp:#?}");
    let mut received = Vec::new();
    wait_until("all that was not dropped to come out", SOON, || {
        received.extend(testbed.wire(1).arrived(|_| true)?);
        Ok((received.len() as u64 >= arrived).then_some(()))
    })
    .unwrap();
    // Some of those that were sent, and none twice.
    let sent: Vec<_> = frames.iter().map(|frame| Testbed::forwarded(frame, 1)).collect();
    let expected = sent.into_iter().filter(|frame| received.contains(frame)).collect();
    ensure_received(received, expected).unwrap();
    assert_nothing_is_unaccounted(&testbed);
    (dropped, to_cpu)
}

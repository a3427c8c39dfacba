//! What an event costs: frames that flow all the while, numbered, and how many did not arrive.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use forwarder_tests::{
    frame::{Frame, Packet},
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
    wire::Wire,
};

use crate::site::{BOTH, Site};

/// Between two frames: both families in turn make a thousand of each in a second.
const PACE: Duration = Duration::from_micros(500);
/// Sent before the event, and again after its end.
const AROUND: u32 = 400;
/// To where our frames go, and nobody else's.
const PORT: u16 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) sent: u32,
    pub(crate) lost: u32,
    /// Of those that arrived: by Linux, since XDP left them to it.
    pub(crate) by_linux: u64,
}

/// Sends frames to both far networks from before an event until long after its end, which `settled`
/// waits for. Every frame that was sent after that end has arrived; none has come twice or changed
/// in a wrong way; and XDP accounts for each.
pub(crate) fn losses(site: &Site, event: impl FnOnce(), settled: impl FnOnce()) -> Losses {
    let (flow, by_linux) = match site.forwarder() {
        None => (flow(site, event, settled), 0),
        Some(testbed) => {
            let work = || Ok(flow(site, event, settled));
            let (flow, Counted { xdp, linux }) = testbed.counted(work).unwrap();
            let port = xdp.interface("eth0").ingress();
            assert_eq!(port.rx.packets, u64::from(flow.sent), "{port:#?}");
            let by_linux = linux.v4 + linux.v6;
            let forwarded = port.redirected.packets + by_linux;
            assert!(forwarded >= u64::from(flow.sent - flow.lost), "{flow:?}, {port:#?}");
            (flow, by_linux)
        }
    };
    Losses { by_linux, ..flow }
}

fn flow(site: &Site, event: impl FnOnce(), settled: impl FnOnce()) -> Losses {
    let (number, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let sent = || number.load(Ordering::Acquire);
    let wait_for = |count: u32| {
        let what = format!("{count} frames to be sent");
        wait_until(&what, SOON, || Ok((sent() >= count).then_some(()))).unwrap();
    };
    let [a, ..] = site.wires() else { panic!("no host") };
    let settled_at = thread::scope(|scope| {
        let sender = scope.spawn(|| send(a, &number, &is_over));
        let _over = Over(&is_over);
        wait_for(AROUND);
        event();
        settled();
        let settled_at = sent();
        wait_for(settled_at + AROUND);
        is_over.store(true, Ordering::Release);
        sender.join().expect("it can send");
        settled_at
    });
    let arrived = collect(site, sent());
    if let Some(late) = (settled_at..sent()).find(|it| !arrived.contains_key(it)) {
        panic!("{}: frame {late} was lost, and all was settled at {settled_at}", site.name());
    }
    let lost = sent() - u32::try_from(arrived.len()).unwrap();
    Losses { sent: sent(), lost, by_linux: 0 }
}

/// Ends the sender when a test fails: a scope waits for its threads.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn send(a: &Wire, number: &AtomicU32, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        a.send(&numbered(number.load(Ordering::Acquire)).bytes()).expect("A sends");
        number.fetch_add(1, Ordering::AcqRel);
        thread::sleep(PACE);
    }
}

/// Of many flows, to both families in turn.
fn numbered(number: u32) -> Frame {
    let frame =
        if number.is_multiple_of(2) { Testbed::frame4(0, 1) } else { Testbed::frame6(0, 1) };
    let flow = u16::try_from(number / 2 % 4096).expect("below the modulus");
    frame.udp(1024 + flow, PORT).payload(&number.to_be_bytes())
}

/// What has come to B and C, by number, with the link by which it came: once the last one is there.
fn collect(site: &Site, sent: u32) -> BTreeMap<u32, u8> {
    let mut arrived = BTreeMap::new();
    let waited = wait_until("the last frame", SOON, || {
        for link in BOTH {
            for frame in drain(&site.wires()[usize::from(link)]) {
                let number = number_of(&frame).expect("ours alone");
                let expected = Testbed::forwarded(&numbered(number), link);
                assert_eq!(frame, expected, "frame {number} by eth{link}");
                let before = arrived.insert(number, link);
                assert_eq!(before, None, "frame {number} twice");
            }
        }
        Ok(arrived.contains_key(&(sent - 1)).then_some(()))
    });
    if let Err(error) = waited {
        let last = arrived.last_key_value();
        panic!("{}: {error:#}: {sent} were sent, the last to arrive is {last:?}", site.name());
    }
    arrived
}

/// Our frames that have arrived. A socket says once that its link was down.
fn drain(wire: &Wire) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut is_down = false;
    loop {
        match wire.receive(Duration::ZERO) {
            Ok(Some(frame)) if number_of(&frame).is_some() => frames.push(frame),
            Ok(Some(_)) => {}
            Ok(None) => return frames,
            Err(error) => assert!(!std::mem::replace(&mut is_down, true), "{error:#}"),
        }
    }
}

fn number_of(frame: &[u8]) -> Option<u32> {
    let packet = Packet::of_frame(frame).ok()?;
    let (_, to) = packet.ports().filter(|_| packet.icmp().is_none())?;
    let number = packet.body.get(8..12)?.try_into().ok()?;
    (to == PORT).then_some(u32::from_be_bytes(number))
}

/// With `--show-output` it is seen.
pub(crate) fn say(what: &str, site: &Site, Losses { sent, lost, by_linux }: Losses) {
    let name = site.name();
    println!("{what}, {name}: {lost} of {sent} frames lost, {by_linux} left to Linux");
}

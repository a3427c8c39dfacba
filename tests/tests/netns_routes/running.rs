//! Routes are changed under running traffic: each frame takes the old way or the new one, none is
//! lost, none comes twice, and when the command returns every later frame takes the new one.

use std::{
    fs,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
};

use anyhow::{Result, ensure};
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    kernel::Forwarded,
    lab::{Lab, host4, host6},
    require, skip,
    testbed::{Counted, SOON, Testbed, routes_beyond},
    wait::wait_until,
    wire::Wire,
};

/// Frames between two looks at how far they have come.
const BURST: usize = 16;
/// That certainly take the way that a command has brought about.
const PHASE: usize = 40;
/// So many must be enough.
const FRAMES_MAX: usize = 300_000;
const ROUNDS: usize = 2;
/// The link of the pilot frames.
const PILOT: u8 = 3;

#[test]
fn ipv4() {
    let [b, c] = [1, 2].map(|link| format!("via {} dev eth{link}", host4(link)));
    let routes =
        Routes { all: "0.0.0.0/0", prefix: "198.19.2.0/24", longer: "198.19.2.1/32", b, c };
    change_routes(Testbed::frame4, &routes);
}

#[test]
fn ipv6() {
    let [b, c] = [1, 2].map(|link| format!("via {} dev eth{link}", host6(link)));
    let routes =
        Routes { all: "::/0", prefix: "2001:db8:102::/48", longer: "2001:db8:102::/64", b, c };
    change_routes(Testbed::frame6, &routes);
}

/// Prefixes that hold the frames' destination, and two next hops.
struct Routes {
    all: &'static str,
    prefix: &'static str,
    longer: &'static str,
    b: String,
    c: String,
}

fn change_routes(frame: fn(u8, u8) -> Frame, routes: &Routes) {
    require!(skip::forwarder());
    let layout = Lab::router().links(4).forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, "--steer off").unwrap();
    for route in routes_beyond(PILOT) {
        testbed.route(&route).unwrap();
    }
    let stream = Stream::new(frame(0, 1).udp(1, 2), frame(0, PILOT).udp(1, 2));
    let wires = &testbed.wires;
    let run = || {
        thread::scope(|scope| {
            let sender = scope.spawn(|| stream.run(wires));
            // Ends the stream even if a command fails.
            let commands = Commands { testbed: &testbed, stream: &stream, phases: vec![] };
            let phases = commands.run_all(routes);
            stream.stop.store(true, SeqCst);
            let received = sender.join().expect("nothing panics there")?;
            Ok((received, phases?))
        })
    };
    let ((mut received, phases), counted) = testbed.counted(run).unwrap();
    let forwarded = counted.xdp.redirected() - stream.pilots();
    wait_until("all that was forwarded to have come", SOON, || {
        received.drain(wires)?;
        Ok((received.count() == forwarded).then_some(()))
    })
    .unwrap();
    let ways = stream.ways(&received).unwrap();
    check(&phases, &ways);
    check_counters(&counted, &stream, &ways);
}

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// There is no route.
    Up,
    /// To the host at this link.
    To(u8),
}

/// What one command has brought about.
#[derive(Debug)]
struct Phase {
    command: String,
    way: Way,
    /// Frames below this number had left the forwarder when the command was given.
    given: usize,
    /// Frames from this number on were sent when the command had returned.
    returned: usize,
}

struct Commands<'a> {
    testbed: &'a Testbed,
    stream: &'a Stream,
    phases: Vec<Phase>,
}

impl Commands<'_> {
    fn run_all(mut self, routes: &Routes) -> Result<Vec<Phase>> {
        use Way::{To, Up};
        let Routes { all, prefix, longer, b, c } = routes;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("routes");
        fs::write(&file, format!("{prefix} {b}\n{all} {b}\n"))?;
        let load = format!("load {} --replace", file.display());
        // All there is from then on; the pilot's routes stay.
        let whole = folder.path().join("whole");
        let pilots: Vec<String> = routes_beyond(PILOT).into_iter().collect();
        fs::write(&whole, format!("{all} {c}\n{}\n", pilots.join("\n")))?;
        let flush = format!("load {} --flush", whole.display());
        for _ in 0..ROUNDS {
            self.run(&format!("add {prefix} {b}"), To(1))?;
            self.run(&format!("replace {prefix} {c}"), To(2))?;
            self.run(&format!("replace {prefix} {b}"), To(1))?;
            self.run(&format!("add {longer} {c}"), To(2))?;
            self.run(&format!("del {longer}"), To(1))?;
            self.run(&format!("add {all} {c}"), To(1))?;
            self.run(&format!("del {prefix}"), To(2))?;
            self.run(&load, To(1))?;
            self.run(&flush, To(2))?;
            self.run(&load, To(1))?;
            self.run(&format!("replace {all} {c}"), To(1))?;
            self.run(&format!("flush root {prefix}"), To(2))?;
            self.run(&format!("del {all}"), Up)?;
        }
        self.run(&format!("add {prefix} {b}"), To(1))?;
        Ok(self.phases)
    }

    fn run(&mut self, command: &str, way: Way) -> Result<()> {
        let given = self.stream.confirmed.load(SeqCst);
        self.testbed.daemon.ok(&format!("route {command}"))?;
        let returned = self.stream.next.load(SeqCst);
        wait_until("more frames", SOON, || {
            Ok((self.stream.confirmed.load(SeqCst) > returned + PHASE).then_some(()))
        })?;
        self.phases.push(Phase { command: command.to_owned(), way, given, returned });
        Ok(())
    }
}

/// Every frame went a way that it was allowed to go.
fn check(phases: &[Phase], ways: &[Way]) {
    let mut old = Way::Up;
    let mut from = 0;
    let certain = |range: Range<usize>, way, when: &str| {
        for (number, found) in (range.start..).zip(&ways[range]) {
            assert_eq!(*found, way, "frame {number}, {when}");
        }
    };
    for Phase { command, way, given, returned } in phases {
        certain(from..*given, old, &format!("before {command}"));
        for (number, found) in (*given..).zip(&ways[*given..*returned]) {
            assert!([old, *way].contains(found), "frame {number} went {found:?} during {command}");
        }
        (old, from) = (*way, *returned);
    }
    certain(from..ways.len(), old, "after the last command");
}

fn check_counters(counted: &Counted, stream: &Stream, ways: &[Way]) {
    let missing = ways.iter().filter(|way| **way == Way::Up).count() as u64;
    let sent = ways.len() as u64 + stream.pilots();
    let port = counted.xdp.interface("eth0");
    assert_eq!(port.ingress().rx.packets, sent);
    assert_eq!(port.passed(Reason::NoRoute), missing, "what did not come went up: {port:#?}");
    assert_eq!(port.redirected(), sent - missing);
    assert_eq!(counted.linux, Forwarded::default());
}

/// Numbered frames of one flow, with a pilot frame after each few, by another way: when that has
/// come, the frames before it have left the forwarder.
struct Stream {
    frame: Frame,
    pilot: Frame,
    /// The number of the next frame.
    next: AtomicUsize,
    /// Frames below this number have left the forwarder.
    confirmed: AtomicUsize,
    stop: AtomicBool,
}

/// What has come to B and to C.
#[derive(Default)]
struct Received([Vec<Vec<u8>>; 2]);

impl Stream {
    fn new(frame: Frame, pilot: Frame) -> Self {
        let (next, confirmed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { frame, pilot, next, confirmed, stop: AtomicBool::new(false) }
    }

    fn run(&self, wires: &[Wire]) -> Result<Received> {
        let mut received = Received::default();
        while !self.stop.load(SeqCst) {
            for _ in 0..BURST {
                let number = self.next.fetch_add(1, SeqCst);
                wires[0].send(&numbered(&self.frame, number).bytes())?;
            }
            let sent = self.next.load(SeqCst);
            wires[0].send(&numbered(&self.pilot, sent).bytes())?;
            wires[usize::from(PILOT)].collect(1, SOON, |_| true)?;
            self.confirmed.store(sent, SeqCst);
            ensure!(sent < FRAMES_MAX, "{sent} frames, and the commands are not done");
            received.drain(wires)?;
        }
        Ok(received)
    }

    fn pilots(&self) -> u64 {
        (self.next.load(SeqCst) / BURST) as u64
    }

    /// Which way each frame went, by its number.
    fn ways(&self, received: &Received) -> Result<Vec<Way>> {
        let mut ways = vec![Way::Up; self.next.load(SeqCst)];
        for (link, frames) in (1..).zip(&received.0) {
            let mut last = None;
            for bytes in frames {
                let number = usize::from_be_bytes(bytes[bytes.len() - 8..].try_into()?);
                let expected = Testbed::forwarded(&numbered(&self.frame, number), link);
                ensure!(*bytes == expected, "{bytes:02x?} came, and not {expected:02x?}");
                ensure!(last < Some(number), "frame {number} came after {last:?}");
                last = Some(number);
                let way = &mut ways[number];
                ensure!(*way == Way::Up, "frame {number} came to two hosts");
                *way = Way::To(link);
            }
        }
        Ok(ways)
    }
}

impl Received {
    fn drain(&mut self, wires: &[Wire]) -> Result<()> {
        for (frames, wire) in self.0.iter_mut().zip(&wires[1..]) {
            frames.extend(wire.arrived(|_| true)?);
        }
        Ok(())
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|frames| frames.len() as u64).sum()
    }
}

fn numbered(frame: &Frame, number: usize) -> Frame {
    frame.clone().payload(&number.to_be_bytes())
}

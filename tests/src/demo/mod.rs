//! The demo: traffic between two hosts, the forwarder between them, and a proof at every step that
//! it was XDP that forwarded, and Linux that did the rest.

mod probe;
mod traffic;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Result;
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    daemon::{Daemon, Forwarder},
    kernel::Forwarded,
    lab::{Lab, host4, host6},
    stats::Stats,
};

use crate::room;

/// The MTU of the link to host B: what is longer needs an ICMP error.
const NARROW: u32 = 1400;

const PICTURE: &str = "  \
  host A ───────────────── eth0  router  eth1 ───────────────── host B
  198.18.1.2          198.18.1.1          198.18.2.1          198.18.2.2
  2001:db8:1::2    2001:db8:1::1          2001:db8:2::1    2001:db8:2::2
";

/// Runs it; the exit code says whether every proof holds.
pub(crate) fn run(forwarder: PathBuf) -> Result<ExitCode> {
    room::furnish()?;
    println!(
        "A lab of network namespaces: it touches no NIC, and leaves nothing behind.\n\n{PICTURE}"
    );
    // So that no first packet has to wait for an answer in Linux.
    let lab = Lab::router().mtu(1, NARROW).static_neighbours().build()?;
    room::show(&lab.router)?;
    let cpus = online_cpus()?;
    let daemon = start(Forwarder::unnamed(&lab.router, forwarder)?, &cpus)?;
    let mut demo = Demo { lab, daemon, proofs: Vec::new() };
    demo.forward()?;
    demo.show_cpus(&cpus)?;
    demo.leave_to_linux()?;
    Ok(demo.conclude())
}

fn start(forwarder: Forwarder, cpus: &[u32]) -> Result<Daemon> {
    let list: Vec<_> = cpus.iter().map(u32::to_string).collect();
    let steer = if cpus.len() > 1 { format!("cpus={}", list.join(",")) } else { "off".into() };
    let arguments = format!("--iface eth0,eth1 --steer {steer}");
    command(&format!("run {arguments}"));
    let daemon = forwarder.start_exactly(&format!("{arguments} --metrics off"))?;
    print!("{}", indented(&daemon.stderr()));
    // Nothing is to be added: it follows the routes that Linux has.
    command("route show");
    print!("{}", indented(&daemon.ok("route show")?));
    Ok(daemon)
}

struct Demo {
    lab: Lab,
    daemon: Daemon,
    /// What was to be shown, and whether it was.
    proofs: Vec<(String, bool)>,
}

/// All that is counted, at one moment.
struct Counts {
    xdp: Stats,
    linux: Forwarded,
}

impl Demo {
    fn forward(&mut self) -> Result<()> {
        title("Traffic between A and B, by ordinary sockets");
        println!("{:54}{:>12}{:>12}", "", "XDP", "Linux");
        println!("{:54}{:>12}{:>12}", "", "forwarded", "forwarded");
        for b in [host4(1).into(), host6(1).into()] {
            self.pass(&format!("100 pings to {b} and their answers"), |lab| {
                traffic::pings(lab.a(), b, 100).map(Expected::Exactly)
            })?;
        }
        for b in [host4(1).into(), host6(1).into()] {
            self.pass(&format!("20,000 datagrams in 16 flows to {b}"), |lab| {
                traffic::datagrams(lab.a(), lab.b(), b, 20_000).map(Expected::Exactly)
            })?;
        }
        for b in [host4(1).into(), host6(1).into()] {
            self.pass(&format!("8 MB by TCP to {b}"), |lab| {
                traffic::stream(lab.a(), lab.b(), b, 8_000_000)?;
                Ok(Expected::AtLeast(8_000_000 / u64::from(NARROW)))
            })?;
        }
        Ok(())
    }

    /// Sends traffic, prints who has forwarded it, and notes whether that was XDP alone.
    fn pass(&mut self, what: &str, traffic: impl FnOnce(&Lab) -> Result<Expected>) -> Result<()> {
        let before = self.counts()?;
        let sent = traffic(&self.lab);
        let now = self.counts()?;
        let xdp = now.xdp.since(&before.xdp).redirected();
        let linux = now.linux.since(before.linux);
        println!("  {what:52}{xdp:>12}{:>12}", linux.v4 + linux.v6);
        self.proofs.push(match sent {
            Ok(expected) => {
                let by_xdp_alone = expected.is(xdp) && linux == Forwarded::default();
                (format!("{what}: forwarded by XDP, {expected}, none by Linux"), by_xdp_alone)
            }
            Err(error) => (format!("{what}: {error:#}"), false),
        });
        Ok(())
    }

    fn show_cpus(&mut self, cpus: &[u32]) -> Result<()> {
        title("What each CPU has forwarded");
        command("stats --per-cpu");
        print!("{}", indented(&self.daemon.ok("stats --per-cpu")?));
        let stats = self.daemon.stats()?;
        for cpu in cpus {
            let forwarded = stats.redirected_on(*cpu);
            self.proofs.push((format!("CPU {cpu} forwarded {forwarded} packets"), forwarded > 0));
        }
        Ok(())
    }

    fn leave_to_linux(&mut self) -> Result<()> {
        title("What needs an answer is left to Linux");
        let before = self.counts()?;
        let answers = [
            probe::traceroute(&self.lab, Lab::frame4(0, 1)),
            probe::traceroute(&self.lab, Lab::frame6(0, 1)),
            probe::too_big(&self.lab, Lab::frame4(0, 1), NARROW),
            probe::too_big(&self.lab, Lab::frame6(0, 1), NARROW),
        ];
        for answer in answers {
            self.proofs.push(match answer {
                Ok(what) => (what, true),
                Err(error) => (format!("{error:#}"), false),
            });
        }
        let now = self.counts()?;
        let stats = now.xdp.since(&before.xdp);
        for (reason, expected) in [(Reason::TtlExpired, 2), (Reason::TooBig, 2)] {
            let passed = stats.interface("eth0").passed(reason);
            let label = reason.label();
            self.proofs.push((format!("{passed} packets counted as {label}"), passed == expected));
        }
        Ok(())
    }

    fn counts(&self) -> Result<Counts> {
        Ok(Counts { xdp: self.daemon.stats()?, linux: Forwarded::of(&self.lab.router)? })
    }

    fn conclude(self) -> ExitCode {
        title("In short");
        for (what, holds) in &self.proofs {
            println!("  {} {what}", if *holds { "✓" } else { "✗" });
        }
        let broken = self.proofs.iter().filter(|(_, holds)| !holds).count();
        if broken == 0 {
            println!("\nAll {} hold: XDP forwarded, Linux did the rest.", self.proofs.len());
            return ExitCode::SUCCESS;
        }
        println!("\n{broken} of {} do not hold.", self.proofs.len());
        print!("{}", indented(&self.daemon.stderr()));
        ExitCode::FAILURE
    }
}

/// How many packets XDP has to forward.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Exactly(u64),
    AtLeast(u64),
}

impl Expected {
    fn is(self, packets: u64) -> bool {
        match self {
            Self::Exactly(expected) => packets == expected,
            Self::AtLeast(least) => packets >= least,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(packets) => write!(f, "exactly {packets} packets"),
            Self::AtLeast(packets) => write!(f, "at least {packets} packets"),
        }
    }
}

/// The first two, which is enough to see that there is more than one.
fn online_cpus() -> Result<Vec<u32>> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(from.parse::<u32>()?..=to.parse()?);
    }
    cpus.truncate(2);
    Ok(cpus)
}

fn title(text: &str) {
    println!("\n{text}");
}

fn command(arguments: &str) {
    println!("$ forwarder {arguments}");
}

fn indented(text: &str) -> String {
    let line = |line| if line == "\n" { [line, ""] } else { ["  ", line] };
    text.split_inclusive('\n').flat_map(line).collect()
}

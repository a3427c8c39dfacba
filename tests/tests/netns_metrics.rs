//! Metrics against the frames that were sent, and against `forwarder stats`.

use std::{
    fs::{self, File},
    net::SocketAddr,
    process::Command,
    thread,
    time::Duration,
};

use forwarder::tracepoints::Tracepoint;
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    crossing::Crossing,
    daemon::{Daemon, Forwarder},
    lab::Lab,
    require,
    scrape::Scrape,
    skip,
    stats::{Count, Outcomes, Stats},
    wait::wait_until,
};

const ADDRESS: &str = "127.0.0.1:9184";
const EXPIRED: u32 = 7;
const SOON: Duration = Duration::from_secs(10);

struct Scene {
    lab: Lab,
    daemon: Daemon,
    crossing: Crossing,
}

fn scene(options: &str) -> Scene {
    let lab = Lab::router().forwarding(false).static_neighbours().build().unwrap();
    let arguments = format!("--iface eth0,eth1 --metrics {ADDRESS} {options}");
    let daemon = Forwarder::new(&lab.router).unwrap().start(&arguments).unwrap();
    let stderr = daemon.stderr();
    assert!(stderr.contains(&format!("metrics on http://{ADDRESS}/metrics")), "{stderr}");
    Crossing::route(daemon.forwarder()).unwrap();
    let crossing = Crossing::open(&lab).unwrap();
    Scene { lab, daemon, crossing }
}

impl Scene {
    fn scrape(&self) -> Scrape {
        Scrape::take(&self.lab.router, address()).unwrap()
    }

    /// Sends frames whose TTL has run out, and waits until all are counted.
    fn expire(&self, count: u32) {
        let a = self.lab.a().wire("eth0").unwrap();
        for _ in 0..count {
            let frame = Lab::frame4(0, 1).udp(1024, 9).ttl(1);
            a.send(&frame.bytes()).unwrap();
        }
        let counted = || {
            let passed = self.daemon.stats()?.interface("eth0").passed(Reason::TtlExpired);
            Ok((passed == u64::from(count)).then_some(()))
        };
        wait_until("the frames to be counted", SOON, counted).unwrap();
    }
}

fn address() -> SocketAddr {
    ADDRESS.parse().unwrap()
}

/// What one program counted on one CPU for one interface is the same in both.
fn assert_equal(scrape: &Scrape, on: [(&str, &str); 2], stage: &str, outcomes: &Outcomes) {
    let same = |family: &str, labels: &[(&str, &str)], Count { packets, bytes }: Count| {
        for (unit, expected) in [("packets", packets), ("bytes", bytes)] {
            let name = format!("forwarder_{family}_{unit}_total");
            let value = scrape.value(&name, labels);
            assert!(is(value, expected), "{name} {labels:?}: {value}, not {expected}");
        }
    };
    let at = [on[0], on[1], ("stage", stage)];
    let rx = if stage == "ingress" { "rx" } else { "worker_rx" };
    same(rx, &on, outcomes.rx);
    same("redirected", &at, outcomes.redirected);
    if stage == "ingress" {
        same("steered", &on, outcomes.steered);
    }
    for reason in Reason::ALL {
        let count = outcomes.passed(reason);
        if count.packets > 0 {
            same("passed", &[at[0], at[1], at[2], ("reason", reason.label())], count);
        }
    }
}

/// What the kernel did afterwards is the same in both, and nothing is missing.
fn assert_after_equal(scrape: &Scrape, stats: &Stats, steers: bool) {
    let sent: u64 = stats.interfaces.iter().map(|it| stats.after(&it.name).sent).sum();
    assert_eq!((sent, stats.lost()), (1000, 0));
    for interface in &stats.interfaces {
        for cpu in &interface.cpus {
            let number = cpu.cpu.to_string();
            let on = [("interface", interface.name.as_str()), ("cpu", &number)];
            let value = scrape.value("forwarder_transmitted_packets_total", &on);
            assert!(is(value, cpu.after.sent), "{on:?}: {value}");
        }
    }
    let queued: u64 = stats.queues.iter().map(|it| it.dequeued).sum();
    assert_eq!(queued > 0, steers);
    for family in ["enqueued", "dequeued"] {
        let family = format!("forwarder_{family}_packets_total");
        assert_eq!(!scrape.family(&family).is_empty(), steers, "{family}");
        assert!(!steers || is(scrape.sum(&family), queued), "{family}: {queued}");
    }
    for equation in ["A", "B", "C", "D", "E", "F"] {
        let value = scrape.value("forwarder_unaccounted_packets", &[("equation", equation)]);
        assert!(is(value, 0), "{equation}: {value}");
    }
    for tracepoint in Tracepoint::ALL.map(Tracepoint::name) {
        let labels = [("tracepoint", tracepoint)];
        assert!(is(scrape.value("forwarder_tracepoint_followed", &labels), 1), "{tracepoint}");
    }
}

/// Counters are whole numbers.
fn is(value: f64, expected: u64) -> bool {
    format!("{value}") == expected.to_string()
}

#[test]
fn metrics_say_what_stats_say_and_what_was_sent() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    for (options, steers) in [("", false), ("--steer cpus=0,1", true)] {
        let scene = scene(options);
        scene.crossing.check(1000).unwrap();
        scene.expire(EXPIRED);

        // What is scraped between two equal looks must be the same.
        let (before, scrape) = (scene.daemon.stats().unwrap(), scene.scrape());
        assert_eq!(scene.daemon.stats().unwrap(), before);
        assert!(before.interfaces.len() >= 2 && before.interfaces[0].cpus.len() >= 2);
        for interface in &before.interfaces {
            for cpu in &interface.cpus {
                let number = cpu.cpu.to_string();
                let on = [("interface", interface.name.as_str()), ("cpu", &number)];
                assert_equal(&scrape, on, "ingress", &cpu.ingress);
                if steers {
                    assert_equal(&scrape, on, "worker", &cpu.worker);
                }
            }
        }

        let of = |name: &str, label: &str, value: &str| -> f64 {
            let family = scrape.family(name).into_iter();
            let eth0 = family.filter(|(labels, _)| labels["interface"] == "eth0");
            eth0.filter(|(labels, _)| labels[label] == value).map(|(_, value)| value).sum()
        };
        let redirected = "forwarder_redirected_packets_total";
        let (ingress, worker) =
            (of(redirected, "stage", "ingress"), of(redirected, "stage", "worker"));
        assert!(is(ingress + worker, 1000), "{ingress} and {worker}");
        assert_eq!(worker > 0.0, steers, "{worker}");
        let expired = of("forwarder_passed_packets_total", "reason", "ttl_expired");
        assert!(is(expired, EXPIRED.into()), "{expired}");
        assert!(is(scrape.value("forwarder_routes", &[("family", "ipv4")]), 1));
        assert_eq!(scrape.family("forwarder_next_hop_packets_total"), []);
        assert_after_equal(&scrape, &before, steers);
        let build = scrape.family("forwarder_build_info");
        assert!(build.len() == 1 && build[0].0.contains_key("version"), "{build:?}");
    }
}

#[test]
fn the_busiest_next_hops_are_counted_where_that_is_asked_for() {
    require!(skip::forwarder());
    let scene = scene("--metrics-routes 2");
    // A third next hop, without any packet.
    scene.daemon.ok("route add 198.18.64.0/18 via 198.18.1.2 dev eth0 --wait 5").unwrap();
    scene.crossing.check(500).unwrap();
    let scrape = scene.scrape();
    for unit in ["packets", "bytes"] {
        assert_eq!(scrape.family(&format!("forwarder_next_hop_{unit}_total")).len(), 2);
    }
    for via in ["198.18.2.2", "2001:db8:2::2"] {
        let labels = [("via", via), ("interface", "eth1")];
        let value = scrape.value("forwarder_next_hop_packets_total", &labels);
        assert!(is(value, 250), "{via}: {value}");
    }
    let json = scene.daemon.forwarder().json("stats").unwrap();
    let hops = json["next_hops"].as_array().unwrap();
    assert_eq!(hops.len(), 2, "{json}");
    for hop in hops {
        let cpus = hop["cpus"].as_array().unwrap();
        let packets: u64 = cpus.iter().map(|cpu| cpu["packets"].as_u64().unwrap()).sum();
        assert_eq!((packets, hop["dev"].as_str()), (250, Some("eth1")), "{json}");
    }
}

#[test]
fn promtool_has_nothing_to_say() {
    require!(skip::forwarder());
    require!(skip::command("promtool", "--version"));
    let scene = scene("--steer cpus=0 --metrics-routes 5");
    scene.crossing.check(20).unwrap();
    scene.expire(1);
    let file = scene.daemon.forwarder().run_dir().join("metrics");
    fs::write(&file, scene.scrape().text).unwrap();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(File::open(&file).unwrap());
    let output = promtool.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!((output.status.code(), said), (Some(0), [String::new(), String::new()]));
}

#[test]
fn scrapes_lose_no_frame() {
    require!(skip::forwarder());
    let scene = scene("--metrics-routes 5");
    let router = &scene.lab.router;
    let sent = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let redirected = |_| {
                let scrape = Scrape::take(router, address()).unwrap();
                scrape.sum("forwarder_redirected_packets_total")
            };
            (0..50).map(redirected).collect::<Vec<f64>>()
        });
        let mut sent = 0;
        while !scraper.is_finished() || sent < 2000 {
            scene.crossing.check(100).unwrap();
            sent += 100;
        }
        let seen = scraper.join().unwrap();
        assert!(seen.is_sorted(), "{seen:?}");
        assert!(seen.last() > seen.first(), "traffic was flowing: {seen:?}");
        sent
    });
    let stats = scene.daemon.stats().unwrap();
    let eth0 = stats.interface("eth0");
    assert_eq!((eth0.redirected(), eth0.ingress().passed_all()), (sent, 0));
    assert!(is(scene.scrape().sum("forwarder_redirected_packets_total"), sent));
}

//! Interfaces that go away under a running forwarder: it lets go of them, and goes on with the
//! others.

use std::time::Duration;

use forwarder::tracepoints::Tracepoint;
use forwarder_tests::{
    crossing::Crossing,
    daemon::Daemon,
    footprint::{Footprint, files, xdp},
    host::Host,
    lab::{Lab, router_mac},
    link::{End, connect},
    require, skip,
    wait::wait_until,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(10);
const THREE: &str = "--iface eth0,eth1,eth2";
/// Programs and links beside those of interfaces.
const TRACEPOINTS: usize = Tracepoint::ALL.len();
const ROUTE: &str = "198.18.3.0/24 via 198.18.3.2 dev eth2";

/// Three links, of which the last will go.
struct Scene {
    lab: Lab,
    daemon: Daemon,
    crossing: Crossing,
    footprint: Footprint,
}

fn scene(mode: &str) -> Scene {
    let lab = Lab::router().links(3).ifindex(2, 1099).forwarding(false).static_neighbours();
    let lab = lab.build().unwrap();
    let daemon = Daemon::start(&lab.router, &format!("{THREE} --mode {mode}")).unwrap();
    Crossing::route(daemon.forwarder()).unwrap();
    daemon.ok(&format!("route add {ROUTE} --wait 5")).unwrap();
    let crossing = Crossing::open(&lab).unwrap();
    crossing.check(100).unwrap();
    let footprint = Footprint::of(&lab.router, "eth2").unwrap();
    assert_eq!(footprint.size(), (2 + TRACEPOINTS, 3 + TRACEPOINTS));
    assert_eq!(pins(&daemon), 3);
    Scene { lab, daemon, crossing, footprint }
}

impl Scene {
    /// The third interface is let go of, and said so; the other two forward.
    fn goes_on_without_it(&self) {
        wait_until("its pin to be gone", SOON, || Ok((pins(&self.daemon) == 2).then_some(())))
            .unwrap();
        let now = || {
            let size = Footprint::of(&self.lab.router, "eth0")?.size();
            Ok((size == (2 + TRACEPOINTS, 2 + TRACEPOINTS)).then_some(()))
        };
        wait_until("its link to be gone", SOON, now).unwrap();
        let stderr = self.daemon.stderr();
        assert!(stderr.contains("is gone: detached from it interface=\"eth2\""), "{stderr}");

        let gone = self.interface("eth2");
        let expected = json!([1099, false, false, ""]);
        let of = |key: &str| gone[key].clone();
        assert_eq!(json!([of("ifindex"), of("up"), of("carrier"), of("mac")]), expected, "{gone}");
        for interface in ["eth0", "eth1"] {
            assert_eq!(self.interface(interface)["up"], true);
            assert!(xdp(&self.lab.router, interface).unwrap().is_some());
        }
        let route = self.daemon.forwarder().json("route show 198.18.3.0/24").unwrap();
        assert_eq!(route[0]["state"], "unusable", "{route}");
        self.crossing.check(100).unwrap();
    }

    fn interface(&self, name: &str) -> Value {
        let status = self.daemon.forwarder().json("status").unwrap();
        let interfaces = status["interfaces"].as_array().unwrap();
        let found = interfaces.iter().find(|interface| interface["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {status}")).clone()
    }
}

fn pins(daemon: &Daemon) -> usize {
    let is_pin = |path: &&std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok())
    };
    files(daemon.forwarder()).iter().filter(is_pin).count()
}

#[test]
fn a_removed_interface_is_let_go_of() {
    require!(skip::forwarder());
    for mode in ["native", "generic"] {
        let scene = scene(mode);
        scene.lab.router.ip("link del eth2").unwrap();
        scene.goes_on_without_it();

        // Another of its name and index is not the same.
        let (router, c) = (&scene.lab.router, &scene.lab.hosts[2]);
        let end = End::new(router, "eth2", router_mac(2)).ifindex(Some(1099));
        connect(&end.address("198.18.3.1/24"), &End::new(c, "eth0", router_mac(3))).unwrap();
        assert_eq!(xdp(router, "eth2").unwrap(), None);
        let c = "198.18.3.2 lladdr 02:00:00:00:03:02 dev eth2 nud permanent";
        router.ip(&format!("neigh replace {c}")).unwrap();
        scene.crossing.check(100).unwrap();
        // Not even with its neighbour known: commands are answered after what the kernel has said.
        let route = scene.daemon.forwarder().json("route show 198.18.3.0/24").unwrap();
        assert_eq!(
            (&route[0]["state"], &route[0]["reason"]),
            (&json!("unusable"), &json!("no_port"))
        );
        assert_eq!(scene.interface("eth2")["mac"], "");
        end_of(scene);
    }
}

#[test]
fn an_interface_that_moves_to_another_namespace_is_let_go_of() {
    require!(skip::forwarder());
    for mode in ["native", "generic"] {
        let scene = scene(mode);
        let elsewhere = Host::new("elsewhere").unwrap();
        let path = elsewhere.namespace.path();
        scene.lab.router.ip(&format!("link set eth2 netns {}", path.display())).unwrap();
        scene.goes_on_without_it();
        // By itself the program would go along.
        assert!(elsewhere.ip("link show eth2").unwrap().starts_with("1099: eth2@"));
        assert_eq!(xdp(&elsewhere, "eth2").unwrap(), None);
        end_of(scene);
    }
}

fn end_of(scene: Scene) {
    let Scene { lab: _lab, daemon, footprint, .. } = scene;
    let (finished, forwarder) = daemon.stop(nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    footprint.gone().unwrap();
    assert!(files(&forwarder).is_empty());
}

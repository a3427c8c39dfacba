//! What `forwarder run` refuses: with a message that names the thing and the remedy, and with
//! nothing half done.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process,
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader,
    programs::{Xdp, XdpMode},
    util::nr_cpus,
};
use forwarder_common::abi::name;
use forwarder_tests::{
    confined::{Caller, NOBODY, as_nobody},
    crossing::Crossing,
    daemon::Forwarder,
    footprint::{Attached, files, xdp},
    lab::Lab,
    object,
    offload::Offload,
    process::{Finished, Process},
    require, skip,
    wait::wait_until,
};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(20);
const BOTH: &str = "--iface eth0,eth1 --metrics off";

fn lab() -> Lab {
    Lab::router().static_neighbours().build().unwrap()
}

/// A lab, and the forwarder that is to refuse.
struct Scene {
    lab: Lab,
    forwarder: Forwarder,
}

impl Scene {
    fn new(lab: Lab) -> Self {
        let forwarder = Forwarder::new(&lab.router).unwrap();
        Self { lab, forwarder }
    }

    /// `run` with these arguments must end with this code and say this, and leave nothing.
    fn refuses(&self, arguments: &str, code: i32, says: &str) {
        let finished = self.forwarder.call(&format!("run {arguments}")).unwrap();
        self.is_refusal(&finished, code, says);
        self.is_untouched(&["eth0", "eth1"]);
    }

    fn is_refusal(&self, finished: &Finished, code: i32, says: &str) {
        let stderr = &finished.stderr;
        assert_eq!(finished.code(), code, "{stderr}");
        let is_error = stderr.lines().any(|line| line.starts_with("error: "));
        assert!(is_error && stderr.contains(says), "no '{says}' in: {stderr}");
        assert_eq!(finished.stdout, "");
        assert!(files(&self.forwarder).is_empty(), "{:?}", files(&self.forwarder));
    }

    fn is_untouched(&self, interfaces: &[&str]) {
        for interface in interfaces {
            assert_eq!(xdp(&self.lab.router, interface).unwrap(), None, "{interface}");
        }
    }

    /// Once the remedy was applied it forwards, with these options more.
    fn accepts(self, options: &str) -> String {
        let crossing = Crossing::open(&self.lab).unwrap();
        let daemon = self.forwarder.start(&format!("{BOTH} {options}")).unwrap();
        Crossing::route(daemon.forwarder()).unwrap();
        crossing.check(20).unwrap();
        daemon.stderr()
    }
}

#[test]
fn what_is_wrong_with_the_arguments_is_named() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let absent = nr_cpus().unwrap();
    let offline = format!("CPU {absent} of --steer is not online: online are 0");
    let steered = |list| format!("{BOTH} --steer cpus={list}");
    let cases = [
        (
            "--iface eth0,eth9",
            1,
            "there is no interface 'eth9' in this network namespace: there are ",
        ),
        ("--iface eth0,eth1,eth0", 2, "--iface: 'eth0' is given twice"),
        ("--iface eth0", 2, "'eth0' alone has nowhere to forward to: name at least two"),
        ("--iface eth0,lo", 1, "lo is the loopback interface: name Ethernet interfaces"),
        ("--iface eth0,eth1 --metrics 9184", 2, "neither off nor ADDRESS:PORT: write for example"),
        (&steered(absent.to_string()), 1, &offline),
        (&steered("0,0".into()), 2, "--steer: CPU 0 is listed twice"),
        (&steered(String::new()), 2, "--steer: the list of CPUs is empty: write for example 0-3,6"),
        (&steered("1-0".into()), 2, "--steer: the range 1-0 runs backwards: write 0-1"),
        (&steered("one".into()), 2, "--steer: 'one' is neither the number of a CPU nor a range"),
        (&format!("{BOTH} --mode fast"), 2, "possible values: auto, native, generic"),
        (&format!("{BOTH} --bypass all"), 2, "possible values: netfilter, tc, xfrm"),
    ];
    for (arguments, code, says) in cases {
        scene.refuses(arguments, code, says);
    }
    // All that is wrong is said at once.
    let both = format!("--iface eth8,lo --steer cpus={absent}");
    for says in ["no interface 'eth8'", "lo is the loopback interface", &offline] {
        scene.refuses(&both, 1, says);
    }
    scene.accepts("");
}

#[test]
fn rules_that_would_be_bypassed_are_named_beside_everything_else() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let router = &scene.lab.router;
    let policy = "src 198.19.1.0/24 dst 198.19.2.0/24 dir fwd";
    router.ip(&format!("xfrm policy add {policy}")).unwrap();
    let absent = nr_cpus().unwrap();
    let both = format!("{BOTH} --steer cpus={absent}");
    for says in [
        &format!("CPU {absent} of --steer is not online"),
        &format!(
            "XDP would bypass the IPsec policy {policy} for IPv4: remove it with `ip xfrm policy \
             delete {policy}`, or say that nobody needs it with --bypass=xfrm"
        ),
    ] {
        scene.refuses(&both, 1, says);
        scene.refuses(&format!("{both} --bypass=netfilter,tc"), 1, says);
    }
    router.ip(&format!("xfrm policy delete {policy}")).unwrap();
    scene.accepts("");
}

#[test]
fn metrics_that_cannot_be_served_are_named() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let taken = scene.lab.router.run(|| TcpListener::bind("127.0.0.1:9184")).unwrap();
    for (address, why) in [
        ("127.0.0.1:9184", "Address already in use (os error 98)"),
        ("198.18.7.7:80", "Cannot assign requested address (os error 99)"),
    ] {
        let says = format!(
            "error: cannot serve metrics on {address}: {why}; choose another address with \
             --metrics ADDR:PORT, or none with --metrics off\n"
        );
        scene.refuses(&format!("--iface eth0,eth1 --metrics {address}"), 1, &says);
    }
    drop(taken);
    scene.accepts("");
}

#[test]
fn a_foreign_program_is_left_alone() {
    require!(skip::forwarder());
    for (mode, generic) in [(XdpMode::Driver, false), (XdpMode::Skb, true)] {
        let scene = Scene::new(lab());
        let router = &scene.lab.router;
        let foreign = router.run(|| attach("eth1", mode));
        let program = xdp(router, "eth1").unwrap().unwrap().program;
        let (kind, off) = if generic { ("generic", "xdpgeneric") } else { ("native", "xdp") };
        let says = format!(
            "eth1 has an XDP program already (id {program}, {kind}): remove it with `ip link set \
             dev eth1 {off} off`; if that is refused, something holds it"
        );
        let finished = scene.forwarder.call(&format!("run {BOTH}")).unwrap();
        scene.is_refusal(&finished, 1, &says);
        scene.is_untouched(&["eth0"]);
        assert_eq!(xdp(router, "eth1").unwrap(), Some(Attached { generic, program }));
        drop(foreign);
        scene.accepts("");
    }
}

#[test]
fn a_port_of_a_bridge_and_what_lies_upon_it_are_refused() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let router = &scene.lab.router;
    if let Err(error) = router.ip("link add br0 type bridge") {
        return skip::skip(&format!("needs bridges: {error:#}"));
    }
    router.ip("link set eth1 master br0").unwrap();
    let remedy = "ip link set eth1 nomaster";
    let says = format!(
        "eth1 belongs to the bridge br0, which takes its frames: take it out with `{remedy}`"
    );
    scene.refuses(BOTH, 1, &says);
    let says = "br0 is a bridge, and XDP has to run below it: name the interfaces that it lies \
                upon (eth1)";
    scene.refuses("--iface eth0,br0", 1, says);
    scene.is_untouched(&["br0"]);
    router.ip(remedy.strip_prefix("ip ").unwrap()).unwrap();
    scene.accepts("");
}

#[test]
fn what_a_driver_cannot_do_is_refused_or_said() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    // This veth has fewer queues than its peer sends by, which its native XDP refuses.
    let (router, a) = (&scene.lab.router, scene.lab.a());
    let peer = format!("eth2 numtxqueues 2 numrxqueues 2 netns {}", a.namespace.path().display());
    let link = "eth2 numtxqueues 1 numrxqueues 1";
    router.ip(&format!("link add {link} type veth peer name {peer}")).unwrap();
    for host in [router, a] {
        host.ip("link set eth2 up").unwrap();
        host.offload("eth2", Offload::TxChecksum, false).unwrap();
        host.offload("eth2", Offload::Gro, true).unwrap();
    }
    let why =
        "cannot attach to eth2 in native mode: its driver veth lacks queues or memory for XDP";
    let remedy = "make both ends with as many (`ip link add … numrxqueues N numtxqueues N`), or use \
                  --mode generic, which is slower";
    let three = "--iface eth0,eth1,eth2 --metrics off";
    // It attaches in this order: the first two have to be let go of.
    scene.refuses(&format!("{three} --mode native"), 1, why);
    scene.refuses(&format!("{three} --mode native"), 1, remedy);
    scene.is_untouched(&["eth2"]);

    let Scene { lab, forwarder } = scene;
    let daemon = forwarder.start(three).unwrap();
    let note = format!("forwarder: note: {why}");
    let stderr = daemon.stderr();
    assert!(stderr.contains(&note), "{stderr}");
    assert!(stderr.contains("runs in generic mode instead, which is several times slower"));
    assert!(stderr.contains("forwarder: eth2 (generic, MTU 1500)"), "{stderr}");
    assert!(daemon.ok("status").unwrap().contains(why));
    for (interface, expected) in [("eth0", false), ("eth1", false), ("eth2", true)] {
        let Attached { generic, .. } = xdp(&lab.router, interface).unwrap().unwrap();
        assert_eq!(generic, expected, "{interface}");
    }
}

#[test]
fn unfinished_checksums_are_refused_unless_accepted() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    scene.lab.b().offload("eth0", Offload::TxChecksum, true).unwrap();
    let says = "eth1 gets frames with unfinished checksums, which its peer eth0 leaves to hardware: \
                switch that off with `nsenter -t ";
    scene.refuses(BOTH, 1, says);
    scene.refuses(BOTH, 1, "-n ethtool -K eth0 tx off");
    scene.accepts("--accept-unfinished-checksums");
}

#[test]
fn missing_capabilities_are_named() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let cases = [
        (
            Caller::Nobody,
            "forwarder needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON: run it as root: sudo -- ",
        ),
        (
            Caller::Container,
            "root lacks CAP_BPF and CAP_PERFMON here, as in a container: start that with `docker \
             run --network host --cap-add BPF --cap-add PERFMON ",
        ),
    ];
    for (caller, says) in cases {
        let finished = caller.call(&scene.forwarder, &format!("run {BOTH}")).unwrap();
        scene.is_refusal(&finished, 1, says);
        scene.is_untouched(&["eth0", "eth1"]);
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let mut command = scene.forwarder.command(&format!("run {BOTH}"));
    command.env("FORWARDER_RUN_DIR", "/proc/version");
    let finished = Process::spawn(command, Signal::SIGTERM).unwrap().finish(PATIENCE).unwrap();
    scene.is_refusal(&finished, 1, "cannot make /proc/version/");
    scene.is_refusal(&finished, 1, "choose another folder with --run-dir");
    scene.is_untouched(&["eth0", "eth1"]);
}

/// Anybody may take an abstract name, and keep every forwarder from starting.
#[test]
fn who_holds_the_namespace_and_is_no_forwarder_is_named() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let squat = || {
        let address = SocketAddr::from_abstract_name("forwarder").unwrap();
        UnixListener::bind_addr(&address).unwrap()
    };
    let squatter = scene.lab.router.run(|| as_nobody(squat));
    let says = format!(
        "process {} of user {NOBODY} holds the abstract socket 'forwarder' of this network \
         namespace, and is no forwarder: end it",
        process::id()
    );
    scene.refuses(BOTH, 1, &says);
    let unload = scene.forwarder.call("unload").unwrap();
    scene.is_refusal(&unload, 1, &says);
    drop(squatter);
    scene.accepts("");
}

#[test]
fn the_interface_of_a_login_needs_yes() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    let says = "this login (SSH from 198.18.1.2) comes in by eth0, and could be cut off: add --yes";
    let refused = logged_in(&scene, &format!("run {BOTH}")).finish(PATIENCE).unwrap();
    scene.is_refusal(&refused, 1, says);
    scene.is_untouched(&["eth0", "eth1"]);

    let process = logged_in(&scene, &format!("run {BOTH} --yes"));
    let up = || Ok(process.stderr().contains("forwarder: ready").then_some(()));
    wait_until("the daemon to be ready", PATIENCE, up).unwrap();
    scene.forwarder.ok("unload").unwrap();
    assert_eq!(process.finish(PATIENCE).unwrap().code(), 0);
}

#[test]
fn a_default_route_is_only_warned_about() {
    require!(skip::forwarder());
    let scene = Scene::new(lab());
    scene.lab.router.ip("route add default via 198.18.2.2").unwrap();
    let stderr = scene.accepts("");
    let says = "this machine's default route leaves by eth1: its own traffic passes the forwarder";
    assert!(stderr.contains("WARN") && stderr.contains(says), "{stderr}");
    assert!(!stderr.contains("leaves by eth0"), "{stderr}");
}

/// Attached by a link that ends when this is dropped.
fn attach(interface: &str, mode: XdpMode) -> Ebpf {
    let mut loader = EbpfLoader::new();
    loader.map_max_entries(name::CPUS, u32::try_from(nr_cpus().unwrap()).unwrap());
    let mut ebpf = loader.load(&object()).unwrap();
    let program: &mut Xdp = ebpf.program_mut(name::INGRESS).unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach(interface, mode).unwrap();
    ebpf
}

/// The same command in a login from host A. It is the first process of its PID namespace, so that
/// it does not see in which login the test itself may run; nor does it see the hosts' processes.
fn logged_in(scene: &Scene, arguments: &str) -> Process {
    let inner = scene.forwarder.command(&format!("{arguments} --accept-unfinished-checksums"));
    let mut command = scene.lab.router.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env("FORWARDER_RUN_DIR", scene.forwarder.run_dir());
    command.env("SSH_CONNECTION", "198.18.1.2 50000 198.18.1.1 22");
    Process::spawn(command, Signal::SIGTERM).unwrap()
}

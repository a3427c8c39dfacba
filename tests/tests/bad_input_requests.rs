//! What a running forwarder refuses: commands, files and bytes that make no sense change nothing,
//! and forwarding goes on.

use std::{
    fmt::Write as _,
    fs,
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use forwarder_common::testing::Random;
use forwarder_tests::{
    confined::{Caller, as_nobody},
    crossing::{Crossing, ROUTES},
    daemon::{Daemon, Forwarder},
    lab::Lab,
    process::Finished,
    require, skip,
    wait::wait_until,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Of the control protocol: its version, and its longest frame.
const PROTOCOL: u32 = forwarder::control::protocol::PROTOCOL_VERSION;
const FRAME_MAX: usize = 256 << 10;

/// A daemon with the two routes of [`Crossing`].
struct Scene {
    daemon: Daemon,
    crossing: Crossing,
    _lab: Lab,
}

impl Scene {
    fn new(options: &str) -> Self {
        let lab = Lab::router().static_neighbours().build().unwrap();
        let arguments = format!("--iface eth0,eth1 {options}");
        let daemon = Forwarder::new(&lab.router).unwrap().start(&arguments).unwrap();
        Crossing::route(daemon.forwarder()).unwrap();
        Self { daemon, crossing: Crossing::open(&lab).unwrap(), _lab: lab }
    }

    /// A command must end with this code and say this; the routes are as they were.
    fn refuses(&self, arguments: &str, code: i32, says: &str) {
        let before = self.daemon.ok("route show").unwrap();
        let finished = self.daemon.forwarder().call(arguments).unwrap();
        is_refusal(&finished, arguments, code, says);
        assert_eq!(self.daemon.ok("route show").unwrap(), before, "{arguments}");
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn socket(&self) -> PathBuf {
        let forwarder = self.daemon.forwarder();
        forwarder.run_dir().join(forwarder.name().unwrap()).join("control.sock")
    }

    /// What the daemon says to these bytes, until it ends the connection.
    fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The daemon may have seen enough before it has read all.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let closed = end.as_ref().map_err(std::io::Error::kind);
        assert!(matches!(closed, Ok(_) | Err(ErrorKind::ConnectionReset)), "{end:?}: {answer}");
        answer
    }
}

fn is_refusal(finished: &Finished, what: &str, code: i32, says: &str) {
    let stderr = &finished.stderr;
    assert_eq!(finished.code(), code, "{what}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.contains(says), "no '{says}' in: {stderr}");
    assert_eq!(finished.stdout, "", "{what}");
}

#[test]
fn commands_that_make_no_sense_are_refused_by_name() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let cases = [
        ("route add 198.18.2.7/24 dev eth1", 2, "has host bits set: the prefix is 198.18.2.0/24"),
        ("route add 2001:db8::1/64 dev eth1", 2, "has host bits set: the prefix is 2001:db8::/64"),
        (
            "route add 198.18.2/24 dev eth1",
            2,
            "'198.18.2/24' is not a prefix: write ADDRESS/LENGTH",
        ),
        ("route add 198.18.2.0/33 dev eth1", 2, "'198.18.2.0/33' is not a prefix: write "),
        (
            "-6 route add 198.18.2.0/24 dev eth1",
            2,
            "'198.18.2.0/24' is not IPv6, which -6 asks for",
        ),
        ("route add 198.18.2.0/24", 2, "leads nowhere: add `via ADDRESS`, `dev INTERFACE` or both"),
        ("route add dev eth1", 2, "a prefix is missing: write PREFIX "),
        ("route add 198.18.2.0/24 via eth1", 2, "'eth1' is not an address: write for example"),
        ("route add 198.18.2.0/24 dev", 2, "'dev' needs the name of an interface after it"),
        ("route add 198.18.2.0/24 wia 198.18.2.2", 2, "'wia' is not understood: write PREFIX "),
        ("route add 198.18.2.0/24 dev eth1 metric 5", 2, "'metric' is not supported: a prefix has"),
        (
            "route add 2001:db8:2::/64 via fe80::2",
            2,
            "means a different host on each link: add `dev",
        ),
        ("route add 198.18.2.0/24 via 2001:db8:2::2", 2, "write `via inet6 2001:db8:2::2`"),
        ("route change 198.18.2.0/24 dev eth1", 2, "unrecognized subcommand 'change'"),
        ("route get 198.18.2", 2, "'198.18.2' is not an address: write for example 198.18.1.2"),
        ("route get 198.18.7.7", 1, "no route to 198.18.7.7: Linux decides where its packets go"),
        ("route del", 2, "required arguments were not provided"),
        ("route del dev eth1", 2, "a prefix is missing"),
        ("route del 198.18.7.0/24", 1, "no such route: 198.18.7.0/24"),
        ("route del 198.19.0.0/16 dev eth0", 1, "no such route: 198.19.0.0/16 dev eth0; it is via"),
        ("route flush", 2, "write for example `route flush dev eth1`, "),
        ("route load /nowhere", 1, "cannot read /nowhere: No such file"),
        ("fly", 2, "unrecognized subcommand 'fly'"),
    ];
    for (arguments, code, says) in cases {
        scene.refuses(arguments, code, says);
    }
    scene.crossing.check(20).unwrap();
}

#[test]
fn next_hops_that_cannot_be_reached_are_refused_by_name() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let has = "(eth0: 198.18.1.1/24, 2001:db8:1::1/64, fe80::1/64; eth1: 198.18.2.1/24, ";
    let nowhere = format!("next hop 198.18.7.7 is on no interface of this forwarder {has}");
    let cases = [
        ("via 198.18.7.7", nowhere.as_str()),
        ("via 198.18.1.2 dev eth1", "next hop 198.18.1.2 is in no subnet of eth1 (198.18.2.1/24, "),
        ("dev eth7", "there is no interface eth7: this forwarder has eth0: 198.18.1.1/24, "),
        ("dev lo", "lo is no Ethernet interface, and cannot be one of this forwarder: "),
        ("via 198.18.2.1", "198.18.2.1 cannot be a next hop: it is an address of this host"),
        (
            "via 198.18.2.255",
            "198.18.2.255 cannot be a next hop: it is an address of this host, or",
        ),
    ];
    for (next_hop, says) in cases {
        scene.refuses(&format!("route add 198.18.128.0/17 {next_hop}"), 1, says);
    }
    let exists =
        "route 198.19.0.0/16 exists already (via 198.18.2.2 dev eth1): use 'route replace'";
    scene.refuses(&format!("route add {}", ROUTES[0]), 1, exists);
    scene.crossing.check(20).unwrap();
}

#[test]
fn memory_that_is_full_is_named_with_its_options() {
    require!(skip::forwarder());
    // By number there is room for all, but each of these is a way of its own through the table.
    let scene = Scene::new("--routes4-max 1000 --routes6-max 30000");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes");
    let load = format!("route load {}", file.display());
    let write = |numbers: std::ops::Range<u16>| {
        let mut lines = String::new();
        for number in numbers {
            let [high, low] = number.to_be_bytes();
            writeln!(lines, "fd{high:02x}:{low:02x}00::1 via 2001:db8:2::2 dev eth1").unwrap();
        }
        fs::write(&file, lines).unwrap();
    };
    let remedy = "and this takes more): start the daemon with a larger '--routes4-max' or \
                  '--routes6-max', which give it more: nothing was changed";
    write(0..20_000);
    scene.refuses(&load, 1, "cannot install 20000 prefixes: the memory of the FIB is full (");
    scene.refuses(&load, 1, remedy);

    let fits = |batch: &u16| {
        write(batch * 2000..(batch + 1) * 2000);
        scene.daemon.forwarder().call(&load).unwrap().status.success()
    };
    let fitted = (0..10).take_while(fits).count();
    assert!((4..8).contains(&fitted), "{fitted} times two thousand");
    scene.refuses(&load, 1, "KB are in use, ");
    scene.refuses(&load, 1, remedy);
    // What is taken away makes room.
    scene.daemon.ok("route flush root fd00::/16").unwrap();
    write(0..100);
    scene.daemon.ok(&load).unwrap();
    scene.crossing.check(20).unwrap();
}

#[test]
fn a_full_table_is_named_with_its_option() {
    require!(skip::forwarder());
    let scene = Scene::new("--routes4-max 10");
    for third in 1..10 {
        scene.daemon.ok(&format!("route add 198.18.{third}.0/24 dev eth1")).unwrap();
    }
    let says = "the IPv4 table is full (10 routes): start the daemon with '--routes4-max N'";
    scene.refuses("route add 198.18.10.0/24 dev eth1", 1, says);
    scene.daemon.ok("route replace 198.18.9.0/24 dev eth0").unwrap();
    scene.daemon.ok("route add 2001:db8:9::/64 dev eth1").unwrap();

    // All or nothing: what there would be room for is not loaded either.
    scene.daemon.ok("route del 198.18.9.0/24").unwrap();
    let file = scene.daemon.forwarder().run_dir().join("routes");
    fs::write(&file, "198.18.9.0/24 dev eth1\n198.18.10.0/24 dev eth1\n").unwrap();
    let load = format!("route load {}", file.display());
    scene.refuses(&load, 1, &format!("{}:2: {says}", file.display()));
    scene.crossing.check(20).unwrap();
}

#[test]
fn a_wrong_line_at_the_end_of_ten_thousand_is_named_and_nothing_is_loaded() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let mut lines = String::new();
    for number in 1..10_000 {
        let (high, low) = (number / 256, number % 256);
        writeln!(lines, "198.18.{high}.{low} via 198.18.2.2 dev eth1").unwrap();
    }
    let file = scene.daemon.forwarder().run_dir().join("routes");
    // Seen by the command, and by the daemon alone.
    for (last, says) in [
        (
            "198.19.1.1/24 dev eth1",
            "'198.19.1.1/24' has host bits set: the prefix is 198.19.1.0/24",
        ),
        ("198.19.1.0/24 dev eth7", "there is no interface eth7: this forwarder has "),
    ] {
        fs::write(&file, format!("{lines}{last}\n")).unwrap();
        let load = format!("route load {}", file.display());
        scene.refuses(&load, 1, &format!("{}:10000: {says}", file.display()));
        scene.refuses(&load, 1, &format!("\n  {last}\nnothing was changed\n"));
    }
    fs::write(&file, lines).unwrap();
    scene.daemon.ok(&format!("route load {}", file.display())).unwrap();
    assert_eq!(scene.daemon.ok("route show").unwrap().lines().count(), 9_999 + ROUTES.len());
    scene.crossing.check(20).unwrap();
}

#[test]
fn bytes_that_are_no_request_are_refused_and_harm_nobody() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let hello = format!(r#"{{"hello":{{"protocol":{PROTOCOL},"version":"test"}}}}"#);
    let hello = frame(hello.as_bytes());
    let after_hello = |bytes: &[u8]| [&hello, bytes].concat();
    let mut megabyte = after_hello(&(1_u32 << 20).to_be_bytes());
    megabyte.resize(megabyte.len() + (1 << 20), b'x');
    let too_long =
        |length| format!("a frame of {length} bytes is longer than the limit of {FRAME_MAX}");
    let stranger = frame(br#"{"hello":{"protocol":999,"version":"9.9.9"}}"#);
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), too_long(u32::from_be_bytes(*b"GET "))),
        (megabyte, too_long(1 << 20)),
        (after_hello(b"\0\0\0\x08\"sta"), "the connection ended in the middle of a frame".into()),
        (hello[..7].to_vec(), "the connection ended in the middle of a frame".into()),
        (after_hello(&frame(b"\xff\xfe\0")), "not a request: ".into()),
        (after_hello(&frame(br#"{"route_add":{"route":7}}"#)), "not a request: ".into()),
        (after_hello(&frame(&b"[".repeat(200_000))), "not a request: ".into()),
        (frame(b"\"unload\""), "the first frame must be a hello".into()),
        (after_hello(&frame(b"{\"load_commit\":7}")), "this frame has no place here".into()),
        (stranger, "newer than the running daemon".into()),
    ];
    let before = scene.daemon.ok("route show").unwrap();
    for (bytes, says) in &cases {
        let answer = scene.answer(bytes);
        assert!(answer.contains(says.as_str()), "no '{says}' in: {answer}");
        scene.crossing.check(10).unwrap();
    }
    // Noise of all kinds: whatever is said to it, the daemon stays.
    let mut random = Random::new(7);
    for _ in 0..200 {
        let length = 1 + random.below(64);
        let noise: Vec<u8> = (0..length).map(|_| random.number().to_le_bytes()[0]).collect();
        scene.answer(&noise);
    }
    assert_eq!(scene.daemon.ok("route show").unwrap(), before);
    scene.crossing.check(20).unwrap();
}

#[test]
fn clients_that_say_nothing_keep_nobody_out_for_long() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let silent: Vec<_> = (0..64).map(|_| scene.connect()).collect();
    let says = "64 clients are connected already: try again in a moment";
    is_refusal(&scene.daemon.forwarder().call("status").unwrap(), "status", 1, says);
    scene.crossing.check(20).unwrap();
    drop(silent);
    let served = || Ok(scene.daemon.ok("status").is_ok().then_some(()));
    wait_until("a place to be free", PATIENCE, served).unwrap();
}

#[test]
fn readers_who_hold_all_their_places_do_not_lock_root_out() {
    require!(skip::forwarder());
    let scene = Scene::new("--group root");
    let path = scene.socket();
    let connect = || as_nobody(|| UnixStream::connect(&path).unwrap());
    let readers: Vec<_> = (0..64).map(|_| connect()).collect();
    let mut one_more = connect();
    one_more.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    one_more.read_to_string(&mut answer).unwrap();
    let says = "64 clients are connected already: try again in a moment";
    assert!(answer.contains(says), "{answer}");

    scene.daemon.ok("status").unwrap();
    scene.daemon.ok("route add 198.18.7.0/24 dev eth1").unwrap();
    scene.daemon.ok("unload").unwrap();
    drop(readers);
}

#[test]
fn a_user_without_rights_is_told_what_is_missing() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let finished = Caller::Nobody.call(scene.daemon.forwarder(), "status").unwrap();
    is_refusal(
        &finished,
        "status",
        1,
        "is not open to this user: use sudo; commands that change nothing",
    );
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_be_bytes(), payload].concat()
}

//! Server and client over a real socket, in front of an engine that answers from a list.

mod messages;
mod refusals;
mod service;

use std::{
    os::unix::net::UnixStream,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use tempfile::TempDir;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{
    codec::{Decoder, Encoder},
    sync::CancellationToken,
};

use super::{
    client::Client,
    frame::FrameCodec,
    protocol::{Hello, Request, Response, decode, encode},
    server::{Limits, Server},
};
use crate::{
    engine::{Command, EngineHandle, Refusal, RoutePage, Status},
    route::{Existing, NextHop, Route, RouteEntry, RouteState, testing::neighbour},
    snapshot::Snapshot,
};

/// A server that is served, with what it takes to end it.
pub(crate) struct Served {
    directory: TempDir,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

pub(crate) fn limits() -> Limits {
    Limits { connections: 64, idle: Duration::from_secs(5), writer_uid: own_uid() }
}

/// Routes of a page: fewer than a frame holds.
const PAGE: usize = 100;

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

impl Served {
    fn start(limits: Limits, routes: Vec<RouteEntry>) -> Self {
        Self::before(limits, |commands| engine_with(routes, commands))
    }

    /// Served by an engine of the test's own.
    pub(crate) fn before<F: Future<Output = ()> + Send + 'static>(
        limits: Limits,
        answering: impl FnOnce(mpsc::Receiver<Command>) -> F,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::bind(&socket_in(&directory), "no-such-group", limits).unwrap();
        let (engine, commands) = EngineHandle::channel();
        tokio::spawn(answering(commands));
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(server.serve(engine, shutdown.clone()));
        Self { directory, shutdown, server }
    }

    fn path(&self) -> PathBuf {
        socket_in(&self.directory)
    }

    /// Runs what blocks beside the server.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        client: impl FnOnce(PathBuf) -> T + Send + 'static,
    ) -> T {
        let path = self.path();
        tokio::task::spawn_blocking(move || client(path)).await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.shutdown.cancel();
        let path = self.path();
        self.server.await.unwrap();
        assert!(!path.exists(), "the socket is still there");
    }
}

fn socket_in(directory: &TempDir) -> PathBuf {
    directory.path().join("lab/control.sock")
}

fn wait_until(what: &str, mut probe: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !probe() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answers every command from these routes.
async fn engine_with(mut routes: Vec<RouteEntry>, mut commands: mpsc::Receiver<Command>) {
    while let Some(command) = commands.recv().await {
        // A client may be gone before its answer: that is its own business.
        match command {
            Command::Status(reply) => drop(reply.send(Ok(status()))),
            Command::Stats(reply) => drop(reply.send(Ok(snapshot(64)))),
            Command::RouteAdd { route, existing, reply, .. } => {
                let there = routes.iter().any(|entry| entry.route.prefix == route.prefix);
                drop(reply.send(if there && existing == Existing::Refuse {
                    Err(Refusal::new(format!("{}: File exists", route.prefix)))
                } else {
                    let entry =
                        RouteEntry { route, states: vec![RouteState::Connected], linux: None };
                    routes.push(entry.clone());
                    Ok(entry)
                }));
            }
            Command::RouteLoad { routes: new, reply, .. } => {
                let count = new.len() as u64;
                let entries = new.into_iter();
                routes.extend(entries.map(|route| RouteEntry {
                    route,
                    states: vec![RouteState::Connected],
                    linux: None,
                }));
                drop(reply.send(Ok(count)));
            }
            Command::RouteDelete { selector, reply } => {
                let at = routes.iter().position(|entry| selector.matches(&entry.route));
                drop(reply.send(match at {
                    Some(at) => Ok(routes.remove(at)),
                    None => Err(Refusal::new("no such route")),
                }));
            }
            Command::RouteFlush { selector, reply } => {
                let before = routes.len();
                routes.retain(|entry| !selector.matches(&entry.route));
                drop(reply.send(Ok((before - routes.len()) as u64)));
            }
            Command::RouteShow { selector, after, reply } => {
                let wanted = routes.iter().filter(|entry| selector.matches(&entry.route));
                let is_behind = |entry: &&RouteEntry| Some(entry.route.prefix) > after;
                let entries: Vec<_> = wanted.filter(is_behind).take(PAGE).cloned().collect();
                let last = entries.get(PAGE - 1).map(|entry| entry.route.prefix);
                drop(reply.send(Ok(RoutePage { entries, more_after: last })));
            }
            Command::RouteGet { destination, reply } => {
                let covering =
                    routes.iter().filter(|entry| entry.route.prefix.contains(destination));
                let longest = covering.max_by_key(|entry| entry.route.prefix.len());
                drop(reply.send(Ok(longest.cloned().into_iter().collect())));
            }
            Command::Audit { reply, .. } => {
                drop(reply.send(Ok(crate::engine::AuditPage::default())));
            }
            Command::Neighbours(reply) => drop(reply.send(Ok(vec![neighbour()]))),
            Command::Unload(reply) => drop(reply.send(Ok(()))),
        }
    }
}

fn route(number: u32) -> Route {
    let address = std::net::Ipv4Addr::from(0xc612_0000 + number).into();
    let next_hop = NextHop {
        via: "198.18.1.2".parse().ok(),
        dev: Some("fifteen-letters".to_owned()),
        weight: 1,
    };
    let prefix = crate::prefix::Prefix::host(address);
    Route { prefix, next_hops: [next_hop].into(), cpus: None }
}

fn entries(count: u32) -> Vec<RouteEntry> {
    let state = RouteState::Pending { on: "neighbour".to_owned() };
    let entry =
        |number| RouteEntry { route: route(number), states: vec![state.clone()], linux: None };
    (0..count).map(entry).collect()
}

fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        name: "lab".to_owned(),
        pid: 1,
        uptime_ms: 1,
        kernel: "6.18".to_owned(),
        interfaces: Vec::new(),
        steering: "off".to_owned(),
        routes4: 0,
        routes6: 0,
        routes_waiting: 0,
        audited: 7,
        audit_differences: 0,
        routes4_max: 1,
        routes6_max: 1,
        metrics: None,
        notes: vec!["a note".to_owned()],
    }
}

/// With many CPUs it is longer than a frame.
fn snapshot(cpus: usize) -> Snapshot {
    use crate::snapshot::{After, Count, CpuCounters, InterfaceCounters};
    let mut counters = CpuCounters::default();
    counters.0.fill(Count { packets: u64::MAX, bytes: u64::MAX });
    let interface = InterfaceCounters {
        name: "eth1".to_owned(),
        ifindex: 3,
        generic: false,
        ingress: vec![counters.clone(); cpus],
        worker: vec![counters; cpus],
        after: vec![After::default(); cpus],
        nic: None,
    };
    let interfaces = vec![interface; 2];
    Snapshot { uptime_ms: 1, cpus_online: vec![0], interfaces, ..Snapshot::default() }
}

/// A client that says what it likes.
struct Raw {
    stream: UnixStream,
    buffer: BytesMut,
}

impl Raw {
    fn connect(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, buffer: BytesMut::new() }
    }

    /// Connects, and exchanges hellos.
    fn greeted(path: &std::path::Path) -> Self {
        let mut raw = Self::connect(path);
        raw.send(&Request::Hello(Hello::ours()));
        assert_eq!(raw.receive(), Some(Response::Hello(Hello::ours())));
        raw
    }

    fn send(&mut self, request: &Request) {
        let mut frame = BytesMut::new();
        FrameCodec.encode(&encode(request), &mut frame).unwrap();
        self.write(&frame);
    }

    /// The other side may close while we are writing: what it says before counts.
    fn write(&mut self, bytes: &[u8]) {
        let _ = std::io::Write::write_all(&mut self.stream, bytes);
    }

    /// `None` at the end of the connection.
    fn receive(&mut self) -> Option<Response> {
        loop {
            if let Some(frame) = FrameCodec.decode(&mut self.buffer).unwrap() {
                return Some(decode(&frame).unwrap());
            }
            let mut bytes = [0; 4096];
            match std::io::Read::read(&mut self.stream, &mut bytes) {
                Ok(0) => return None,
                Ok(size) => self.buffer.extend_from_slice(&bytes[..size]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// The sentence with which the server ends the connection.
    fn last_words(mut self) -> String {
        let Some(Response::Refused(refusal)) = self.receive() else {
            panic!("no refusal came");
        };
        assert_eq!(self.receive(), None, "the connection goes on");
        refusal.message
    }
}

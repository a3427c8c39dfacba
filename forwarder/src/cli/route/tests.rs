//! Commands against a server whose engine says what the test wants.

use std::{collections::VecDeque, io};

use clap::Parser;
use tokio::sync::mpsc;

use super::*;
use crate::{
    cli::{
        args::{Cli, Command as Typed},
        output::Format,
    },
    control::tests::{Served, limits},
    engine::{Command, Refusal, RoutePage},
};

/// An engine that answers with these states, one after the other, the last for ever. It refuses
/// routes over eth9.
async fn engine(states: Vec<RouteState>, mut commands: mpsc::Receiver<Command>) {
    let mut states = VecDeque::from(states);
    let mut routes: Vec<Route> = Vec::new();
    let nine = |route: &Route| route.next_hops[0].dev.as_deref() == Some("eth9");
    while let Some(command) = commands.recv().await {
        let state = match states.len() {
            0 => RouteState::Connected,
            1 => states[0].clone(),
            _ => states.pop_front().unwrap(),
        };
        let entry = |route: &Route| RouteEntry {
            route: route.clone(),
            states: vec![state.clone(); route.next_hops.len()],
            linux: None,
        };
        match command {
            Command::RouteAdd { route, reply, .. } if nine(&route) => {
                drop(reply.send(Err(Refusal::new("there is no interface 'eth9'"))));
            }
            Command::RouteAdd { route, reply, .. } => {
                drop(reply.send(Ok(entry(&route))));
                routes.push(route);
            }
            Command::RouteLoad { routes: new, reply, .. } => {
                let fault = new.iter().position(nine);
                let refused = fault.map(|at| Refusal {
                    message: "there is no interface 'eth9'".to_owned(),
                    index: Some(at as u64),
                });
                if refused.is_none() {
                    routes.extend(new.iter().cloned());
                }
                drop(reply.send(refused.map_or(Ok(new.len() as u64), Err)));
            }
            Command::RouteShow { selector, reply, .. } => {
                let wanted = routes.iter().filter(|route| selector.matches(route));
                let page = RoutePage { entries: wanted.map(entry).collect(), more_after: None };
                drop(reply.send(Ok(page)));
            }
            Command::RouteFlush { selector, reply } => {
                assert!(!selector.is_empty(), "an empty selector was sent");
                let before = routes.len();
                routes.retain(|route| !selector.matches(route));
                drop(reply.send(Ok((before - routes.len()) as u64)));
            }
            Command::RouteGet { destination, reply } => {
                let found = routes.iter().find(|route| route.prefix.contains(destination));
                drop(reply.send(Ok(found.map(entry).into_iter().collect())));
            }
            other => panic!("{other:?} was not expected"),
        }
    }
}

fn typed(line: &str) -> (RouteCommand, Option<Family>, Format) {
    let words = ["forwarder"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let Typed::Route { command: Some(command) } = cli.command else { panic!("no command") };
    let format = Format::new(cli.global.json, cli.global.pretty);
    (command, cli.global.family(), format)
}

/// Runs one command line; answers with what it wrote.
fn forwarder(path: &Path, line: &str) -> Result<String, String> {
    let (command, family, format) = typed(line);
    let mut bytes = Vec::new();
    let connect = || Ok(Client::connect(path)?);
    run(command, family, connect, Output::new(&mut bytes, format))
        .map(|()| String::from_utf8(bytes).unwrap())
        .map_err(|error| format!("{}: {error}", error.exit_code()))
}

fn pending() -> RouteState {
    RouteState::Pending { on: "neighbour".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_changed_and_shown() {
    let served = Served::before(limits(), |commands| engine(Vec::new(), commands));
    served
        .with(|path| {
            let run = |line: &str| forwarder(&path, line);
            assert_eq!(run("route add 198.18.2.0/24 via 198.18.1.2 dev eth1"), Ok(String::new()));
            run("r a 2001:db8::/32 dev eth1").unwrap();
            let all = "198.18.2.0/24 via 198.18.1.2 dev eth1 proto xdp\n2001:db8::/32 dev eth1 proto xdp\n";
            assert_eq!(run("route show").unwrap(), all);
            assert_eq!(run("-6 route list").unwrap(), "2001:db8::/32 dev eth1 proto xdp\n");
            assert_eq!(
                run("-j route get 2001:db8::7").unwrap(),
                "[{\"dst\":\"2001:db8::/32\",\"dev\":\"eth1\",\"protocol\":\"xdp\",\"flags\":[],\"state\":\"connected\"}]\n"
            );
            assert_eq!(
                run("route get 198.18.9.9").unwrap_err(),
                "1: no route to 198.18.9.9: Linux decides where its packets go"
            );
            assert_eq!(
                run("route add 198.18.3.0/24 dev eth9").unwrap_err(),
                "1: there is no interface 'eth9'"
            );
            assert!(run("-4 route flush").unwrap_err().starts_with("2: nothing says which"));
            run("-4 route flush all").unwrap();
            assert_eq!(run("route show").unwrap(), "2001:db8::/32 dev eth1 proto xdp\n");
            run("route flush all").unwrap();
            assert_eq!(run("route show").unwrap(), "");
            assert_eq!(run("-j route show").unwrap(), "[]\n");
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_when_the_route_forwards_and_fails_when_it_does_not() {
    let states = vec![pending(), pending(), pending(), RouteState::Connected];
    let served = Served::before(limits(), |commands| engine(states, commands));
    served
        .with(|path| {
            let line = "route add --wait 60 198.18.2.0/24 via 198.18.1.2";
            assert_eq!(forwarder(&path, line), Ok(String::new()));
        })
        .await;
    served.end().await;

    let served = Served::before(limits(), |commands| engine(vec![pending()], commands));
    served
        .with(|path| {
            assert_eq!(
                forwarder(&path, "route add 198.18.2.0/24 via 198.18.1.2 --wait 0").unwrap_err(),
                "1: 198.18.2.0/24 via 198.18.1.2 does not forward after 0 s: pending: neighbour (the route stays; see `forwarder neigh show`)"
            );
            // Without --wait it is said, and no failure.
            assert!(forwarder(&path, "route add 198.18.3.0/24 via 198.18.1.2").is_ok());
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_loaded_or_its_wrong_line_named() {
    let served = Served::before(limits(), |commands| engine(Vec::new(), commands));
    served
        .with(|path| {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("routes.txt");
            let name = file.display();
            let load = |text: &str| {
                std::fs::write(&file, text).unwrap();
                forwarder(&path, &format!("route load {name}"))
            };
            assert_eq!(
                load("198.18.2.0/24 dev eth1\n\n198.18.3.0/24 dev eth9\n").unwrap_err(),
                format!(
                    "1: {name}:3: there is no interface 'eth9'\n  198.18.3.0/24 dev eth9\nnothing was changed"
                )
            );
            assert_eq!(forwarder(&path, "route show").unwrap(), "");
            load("add 198.18.2.0/24 dev eth1  # one\n2001:db8::/32 dev eth1").unwrap();
            let shown = forwarder(&path, "route show").unwrap();
            assert_eq!(shown.lines().count(), 2);
            // What is shown can be loaded.
            assert!(load(&shown).is_ok());
        })
        .await;
    served.end().await;
}

#[test]
fn what_is_wrong_is_found_before_the_daemon_is_asked() {
    for line in ["route add 198.18.2.1/24 dev eth1", "route del dev eth1", "route get x"] {
        let (command, family, format) = typed(line);
        let connect = || panic!("connected for: {line}");
        let error = run(command, family, connect, Output::new(Vec::new(), format)).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}: {error}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let prefix = "198.18.2.0/24".parse().unwrap();
    let next_hop = NextHop { via: None, dev: Some("eth1".to_owned()), weight: 1 };
    let route = Route { prefix, next_hops: [next_hop].into(), cpus: None };
    let entry = RouteEntry { route, states: vec![RouteState::Connected], linux: None };
    for format in [Format::Text, Format::Json, Format::PrettyJson] {
        let error =
            print(std::slice::from_ref(&entry), false, Output::new(Closed, format)).unwrap_err();
        assert!(matches!(error, CliError::ClosedPipe), "{format:?}: {error}");
        assert_eq!(error.exit_code(), 0);
    }
}

//! What is asked is answered, also when others behave badly.

use super::*;
use crate::{
    control::{chunk::Chunk, client::ClientError},
    prefix::Prefix,
    route::{PrefixMatch, Selector},
};

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_answered() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut client = Client::connect(&path).unwrap();
            assert_eq!(client.status().unwrap(), status());
            assert_eq!(client.stats().unwrap(), snapshot(64), "in parts");
            assert_eq!(client.neighbours().unwrap(), [neighbour()]);

            let added = client.route_add(route(7), Existing::Refuse, true).unwrap();
            assert_eq!(added.route, route(7));
            let refusal = client.route_add(route(7), Existing::Refuse, true).unwrap_err();
            assert_eq!(refusal.to_string(), "198.18.0.7/32: File exists");
            client.route_add(route(8), Existing::Replace, true).unwrap();

            let get = |client: &mut Client, text: &str| client.route_get(text.parse().unwrap());
            assert_eq!(get(&mut client, "198.18.0.7").unwrap(), std::slice::from_ref(&added));
            assert_eq!(get(&mut client, "198.18.0.9").unwrap(), []);

            let prefix = Some(PrefixMatch::Exact(route(7).prefix));
            let only = Selector { prefix, ..Selector::default() };
            assert_eq!(shown(&mut client, &only), std::slice::from_ref(&added));
            assert_eq!(client.route_delete(only.clone()).unwrap(), added);
            assert_eq!(client.route_delete(only).unwrap_err().to_string(), "no such route");

            let all = PrefixMatch::Root(Prefix::default_of(crate::prefix::Family::Inet));
            let all = Selector { prefix: Some(all), ..Selector::default() };
            assert_eq!(client.route_flush(all).unwrap(), 1);
            client.unload().unwrap();
        })
        .await;
    served.end().await;
}

fn shown(client: &mut Client, selector: &Selector) -> Vec<RouteEntry> {
    client.route_show(selector.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_routes_are_loaded_and_shown_in_order() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut client = Client::connect(&path).unwrap();
            let routes: Vec<_> = (0..20_001).map(route).collect();
            assert_eq!(client.route_load(&routes, Existing::Refuse, true, |_| ()).unwrap(), 20_001);
            let shown = shown(&mut client, &Selector::default());
            assert!(shown.iter().map(|entry| &entry.route).eq(&routes));
            assert_eq!(client.route_load(&[], Existing::Refuse, true, |_| ()).unwrap(), 0);
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_not_committed_does_nothing() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut raw = Raw::greeted(&path);
            raw.send(&Request::RouteLoad { existing: Existing::Refuse, xdp_only: true });
            assert_eq!(raw.receive(), Some(Response::Ready));
            raw.send(&Request::LoadChunk(Chunk::from(&[route(1)][..])));
            // The count is wrong: something has been lost.
            raw.send(&Request::LoadCommit(2));
            assert_eq!(raw.last_words(), "the load was not finished");

            let mut raw = Raw::greeted(&path);
            raw.send(&Request::RouteLoad { existing: Existing::Refuse, xdp_only: true });
            raw.send(&Request::LoadChunk(Chunk::from(&[route(1)][..])));
            drop(raw);

            let mut client = Client::connect(&path).unwrap();
            assert_eq!(shown(&mut client, &Selector::default()), []);
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_keeps_nobody_waiting_and_is_dropped() {
    let idle = Duration::from_millis(300);
    // Several megabytes: far more than a socket's buffers hold.
    let served = Served::start(Limits { connections: 2, idle, ..limits() }, entries(50_000));
    served
        .with(|path| {
            let mut slow = Raw::greeted(&path);
            slow.send(&Request::RouteShow(Selector::default()));
            let mut client = Client::connect(&path).unwrap();
            assert_eq!(client.status().unwrap(), status(), "while the slow one holds its answer");
            drop(client);

            // It takes nothing, and is dropped for that: both places are free then.
            wait_until("the slow client's place is free", || {
                let both = (Client::connect(&path), Client::connect(&path));
                matches!(both, (Ok(_), Ok(_)))
            });
            let mut seen = 0;
            while let Some(Response::Routes(routes)) = slow.receive() {
                seen += routes.len();
            }
            assert!(seen < 50_000, "the whole answer came");
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_at_once_are_served_or_turned_away() {
    let served = Served::start(Limits { connections: 8, ..limits() }, Vec::new());
    let attempts: Vec<_> = (0..1000)
        .map(|_| {
            let path = served.path();
            tokio::task::spawn_blocking(move || Client::connect(&path)?.status())
        })
        .collect();
    let (mut answered, mut turned_away) = (0, 0);
    for attempt in attempts {
        match attempt.await.unwrap() {
            Ok(answer) => {
                assert_eq!(answer, status());
                answered += 1;
            }
            Err(ClientError::Refused(refusal)) => {
                let expected = "8 clients are connected already: try again in a moment";
                assert_eq!(refusal.message, expected);
                turned_away += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(answered + turned_away, 1000);
    assert!(answered > 0);
    served.with(|path| Client::connect(&path).unwrap().status().unwrap()).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_of_a_client_that_left_is_free_again() {
    let served = Served::start(Limits { connections: 1, ..limits() }, Vec::new());
    served
        .with(|path| {
            let first = Client::connect(&path).unwrap();
            let second = Client::connect(&path).unwrap_err();
            assert_eq!(
                second.to_string(),
                "1 clients are connected already: try again in a moment"
            );
            drop(first);
            wait_until("the place is free", || Client::connect(&path).is_ok());
        })
        .await;
    served.end().await;
}

#[test]
fn an_answer_under_way_is_given_before_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = socket_in(&directory);
    let (engine, mut commands) = EngineHandle::channel();
    let shutdown = CancellationToken::new();
    let (bound, is_bound) = std::sync::mpsc::channel();
    let server = std::thread::spawn({
        let (path, shutdown) = (path.clone(), shutdown.clone());
        // Its tasks end with it, as those of the daemon do.
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let server = Server::bind(&path, "no-such-group", limits()).unwrap();
                bound.send(()).unwrap();
                server.serve(engine, shutdown).await;
            });
        }
    });
    is_bound.recv().unwrap();
    let client = std::thread::spawn({
        let path = path.clone();
        move || Client::connect(&path).unwrap().unload()
    });
    let Some(Command::Unload(reply)) = commands.blocking_recv() else {
        panic!("something else was asked");
    };
    shutdown.cancel();
    wait_until("the socket is gone", || !path.exists());
    reply.send(Ok(())).unwrap();
    client.join().unwrap().unwrap();
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_gone_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let unserved = Server::bind(&socket_in(&directory), "no-such-group", limits()).unwrap();
    let (engine, commands) = EngineHandle::channel();
    drop(commands);
    let shutdown = CancellationToken::new();
    let served = Served {
        directory,
        shutdown: shutdown.clone(),
        server: tokio::spawn(unserved.serve(engine, shutdown)),
    };
    served
        .with(|path| {
            let error = Client::connect(&path).unwrap().status().unwrap_err();
            assert_eq!(error.to_string(), "the daemon is shutting down");
        })
        .await;
    served.end().await;
}

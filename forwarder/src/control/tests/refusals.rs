//! What cannot be answered is refused with a sentence, and harms nobody.

use std::{
    io::ErrorKind,
    os::unix::{fs::PermissionsExt, net::UnixListener},
};

use super::*;
use crate::control::{
    client::ClientError,
    frame::FRAME_MAX,
    server::{BindError, is_served},
};
use crate::route::Selector;

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_refused_and_the_connection_closed() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut raw = Raw::connect(&path);
            raw.write(b"GET / HTTP/1.1\r\n\r\n");
            assert_eq!(
                raw.last_words(),
                "a frame of 1195725856 bytes is longer than the limit of 262144"
            );

            let mut raw = Raw::connect(&path);
            raw.write(b"\0\0\0\x03{}\n");
            let words = raw.last_words();
            assert!(words.starts_with("not a request: "), "{words}");

            let mut raw = Raw::greeted(&path);
            raw.write(b"\0\0\0\x05\"sing");
            assert!(raw.last_words().starts_with("not a request: "));

            let mut raw = Raw::connect(&path);
            raw.send(&Request::Status);
            assert_eq!(raw.last_words(), "the first frame must be a hello");

            let mut raw = Raw::greeted(&path);
            raw.send(&Request::LoadCommit(0));
            assert_eq!(raw.last_words(), "this frame has no place here");
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_a_megabyte_is_refused() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut raw = Raw::greeted(&path);
            let mut bytes = (1u32 << 20).to_be_bytes().to_vec();
            bytes.resize(bytes.len() + (1 << 20), b'x');
            raw.write(&bytes);
            let expected =
                format!("a frame of 1048576 bytes is longer than the limit of {FRAME_MAX}");
            assert_eq!(raw.last_words(), expected);
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_cut_off_does_not_hang() {
    let idle = Duration::from_millis(50);
    let served = Served::start(Limits { idle, ..limits() }, Vec::new());
    served
        .with(|path| {
            let mut raw = Raw::greeted(&path);
            raw.write(b"\0\0\0\x08\"sta");
            assert_eq!(raw.last_words(), "a frame did not end within 50 ms");

            let mut raw = Raw::greeted(&path);
            raw.write(b"\0\0\0\x08\"sta");
            raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(raw.last_words(), "the connection ended in the middle of a frame");

            let raw = Raw::greeted(&path);
            assert_eq!(raw.last_words(), "nothing was asked for 50 ms");
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_user_may_change_things() {
    let served = Served::start(Limits { writer_uid: own_uid() + 1, ..limits() }, entries(1));
    served
        .with(|path| {
            let mut client = Client::connect(&path).unwrap();
            for (change, error) in [
                ("route add", client.route_add(route(9), Existing::Refuse, true).map(drop)),
                ("route replace", client.route_add(route(9), Existing::Replace, true).map(drop)),
                (
                    "route load",
                    client.route_load(&[route(9)], Existing::Refuse, true, |_| ()).map(drop),
                ),
                ("route del", client.route_delete(Selector::default()).map(drop)),
                ("route flush", client.route_flush(Selector::default()).map(drop)),
                ("unload", client.unload()),
            ] {
                let expected = format!("`{change}` is for root: run it with sudo");
                assert_eq!(error.unwrap_err().to_string(), expected);
            }
            assert_eq!(client.status().unwrap(), status(), "the connection goes on");
            assert_eq!(client.route_get("198.18.0.0".parse().unwrap()).unwrap().iter().len(), 1);
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_means_too_much_is_refused() {
    let served = Served::start(limits(), entries(2));
    served
        .with(|path| {
            let mut client = Client::connect(&path).unwrap();
            let dev = Some("fifteen-letters".to_owned());
            let selector = Selector { dev, ..Selector::default() };
            assert_eq!(
                client.route_delete(selector).unwrap_err().to_string(),
                "a route is removed by its exact prefix"
            );
            assert_eq!(
                client.route_flush(Selector::default()).unwrap_err().to_string(),
                "an empty selector would remove all routes: name a family at least"
            );
            assert_eq!(client.route_show(Selector::default()).unwrap().len(), 2);
        })
        .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_protocol_is_refused_by_both_sides() {
    let served = Served::start(limits(), Vec::new());
    served
        .with(|path| {
            let mut raw = Raw::connect(&path);
            let newer = Hello { protocol: 99, version: "9.9.9".to_owned() };
            raw.send(&Request::Hello(newer));
            assert_eq!(raw.receive(), Some(Response::Hello(Hello::ours())));
            assert!(raw.last_words().ends_with("restart the daemon with the new version"));
        })
        .await;
    served.end().await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut raw = Raw { stream, buffer: BytesMut::new() };
        let hello = Response::Hello(Hello { protocol: 99, version: "9.9.9".to_owned() });
        let mut frame = BytesMut::new();
        FrameCodec.encode(&encode(&hello), &mut frame).unwrap();
        raw.write(&frame);
    });
    let error = Client::connect(&path).unwrap_err();
    assert!(matches!(error, ClientError::Mismatch(_)), "{error}");
    assert!(error.to_string().ends_with("upgrade the command"), "{error}");
    daemon.join().unwrap();
}

#[tokio::test]
async fn a_dead_daemon_s_socket_is_told_from_none_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let stale = || match Client::connect(&path).unwrap_err() {
        ClientError::NoDaemon { stale, .. } => stale,
        error => panic!("{error}"),
    };
    assert!(!stale());
    assert!(!is_served(&path));

    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists() && stale());
    assert!(!is_served(&path));

    let server = Server::bind(&path, "no-such-group", limits()).unwrap();
    assert!(is_served(&path));
    drop(server);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_second_server_is_refused_and_the_first_keeps_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = socket_in(&directory);
    let first = Server::bind(&path, "no-such-group", limits()).unwrap();
    let error = Server::bind(&path, "no-such-group", limits()).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    assert!(is_served(&path));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "something else was left beside the socket");
    drop(first);
}

#[tokio::test]
async fn the_socket_belongs_to_the_group_where_there_is_one() {
    let group = nix::unistd::Group::from_gid(nix::unistd::getegid()).unwrap();
    let Some(group) = group else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = socket_in(&directory);
    let _server = Server::bind(&path, &group.name, limits()).unwrap();
    let owner = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&path).unwrap());
    assert_eq!(owner, group.gid.as_raw());
}

#[tokio::test]
async fn a_path_that_no_socket_can_have_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x".repeat(120));
    let error = Server::bind(&path, "no-such-group", limits()).unwrap_err();
    let BindError::Socket { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), ErrorKind::InvalidInput);
}

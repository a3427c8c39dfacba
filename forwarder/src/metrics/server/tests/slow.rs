//! Clients that do not read, or too slowly.

use super::*;

/// So many that the answer is larger than what sockets hold: the server has to wait for the client.
const INTERFACES_MANY: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_is_cut_off_and_bothers_nobody() {
    let limits = Limits {
        connections_max: 2,
        answer_timeout: PATIENCE,
        connection_timeout: Duration::from_secs(4),
        ..Limits::DEFAULT
    };
    let lab = lab(limits, ALWAYS, INTERFACES_MANY).await;
    let mut deaf = lab.connect_narrow().await;
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    deaf.readable().await.unwrap();

    let (status, _) = lab.get("/healthz").await;
    assert_eq!(status, 200, "another client is served meanwhile");

    let port = deaf.local_addr().unwrap().port();
    let gone = async {
        while server_has_socket(lab.address.port(), port) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("it pins its connection forever");
    assert_incomplete(&deaf, Vec::new());
    lab.stop().await;
}

/// It takes a little now and then, so that the kernel has no reason to give up on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_too_slowly_loses_its_place() {
    let limits = Limits {
        connections_max: 1,
        answer_timeout: PATIENCE,
        connection_timeout: Duration::from_secs(4),
        ..Limits::DEFAULT
    };
    let lab = lab(limits, ALWAYS, INTERFACES_MANY).await;
    let mut slow = lab.connect_narrow().await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    let place_is_free = async {
        while lab.get("/healthz").await.0 == 503 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut little = vec![0; 64 << 10];
            let length = slow.try_read(&mut little).unwrap_or(0);
            response.extend_from_slice(&little[..length]);
        }
    };
    timeout(PATIENCE, place_is_free).await.expect("it keeps its place");
    assert_incomplete(&slow, response);
    lab.stop().await;
}

/// The client neither reads nor goes; its connection may outlive shutdown only for so long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_does_not_wait_for_a_client_that_never_reads() {
    let limits = Limits {
        answer_timeout: PATIENCE,
        connection_timeout: PATIENCE * 2,
        shutdown_timeout: SHORT,
        ..Limits::DEFAULT
    };
    let lab = lab(limits, ALWAYS, INTERFACES_MANY).await;
    let mut deaf = lab.connect_narrow().await;
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    deaf.readable().await.unwrap();
    lab.stop().await;
    assert_incomplete(&deaf, Vec::new());
}

/// Whether the kernel still keeps the server's end, be it as what is left after a close.
fn server_has_socket(server_port: u16, client_port: u16) -> bool {
    let (server, client) = (format!(":{server_port:04X}"), format!(":{client_port:04X}"));
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().unwrap().ends_with(&server) && fields.next().unwrap().ends_with(&client)
    })
}

/// The answer had begun and was larger than what came, or else the test has shown nothing.
fn assert_incomplete(client: &TcpStream, mut response: Vec<u8>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.try_read(&mut buffer) {
        response.extend_from_slice(&buffer[..length]);
    }
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let length = response.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
    assert!(body(&response).len() < length.parse().unwrap());
}

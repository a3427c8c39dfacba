//! Real TCP on loopback; the engine is a task that answers from a fixed snapshot.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    sync::Notify,
    task::JoinHandle,
};

use super::{
    super::testing::{parse, promtool_accepts, small, status},
    *,
};

mod slow;

const SHORT: Duration = Duration::from_millis(200);
/// Nothing here takes as long; what does has hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose engine answers only as often as `answers` has permits.
struct Lab {
    address: SocketAddr,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
    asked: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
    arrived: Arc<Notify>,
}

const ALWAYS: usize = Semaphore::MAX_PERMITS;

async fn lab(limits: Limits, answers: usize, interfaces: usize) -> Lab {
    let (engine, mut commands) = EngineHandle::channel();
    let asked = Arc::new(AtomicUsize::new(0));
    let answers = Arc::new(Semaphore::new(answers));
    let arrived = Arc::new(Notify::new());
    let (count, permits, arrival) = (asked.clone(), answers.clone(), arrived.clone());
    let mut snapshot = small();
    for number in 0..interfaces {
        let mut interface = snapshot.interfaces[1].clone();
        interface.name = format!("many{number}");
        snapshot.interfaces.push(interface);
    }
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            arrival.notify_one();
            match command {
                Command::Stats(reply) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    permits.acquire().await.unwrap().forget();
                    let _ = reply.send(Ok(snapshot.clone()));
                }
                Command::Status(reply) => {
                    let _ = reply.send(Ok(status(&[("eth0", 2)], "off")));
                }
                other => panic!("not asked by a scrape: {other:?}"),
            }
        }
    });
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(listener, engine, limits, shutdown.clone()));
    Lab { address, shutdown, server, asked, answers, arrived }
}

impl Lab {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// With a receive buffer of the least size.
    async fn connect_narrow(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Status and the whole response.
    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.send(format!("GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n")).await;
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status: {response:?}")), response)
    }

    async fn send(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(request.as_ref()).await;
        read_to_end(&mut stream).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(PATIENCE, self.server).await.expect("the server hangs").unwrap();
    }
}

/// What comes until the server closes, orderly or not.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut response)).await.expect("no end comes");
    String::from_utf8(response).unwrap()
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").expect("a head and a body").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_has_the_engines_counters() {
    let lab = lab(Limits::DEFAULT, ALWAYS, 0).await;
    let (status, response) = lab.get("/metrics").await;
    assert_eq!(status, 200);
    let head = response.to_ascii_lowercase();
    assert!(head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let scraped = parse(body(&response));
    let received: f64 = scraped["forwarder_rx_packets_total"].values().sum();
    assert!((received - 10.0).abs() < 0.5);
    promtool_accepts(body(&response));
    assert!(head.contains("\r\nconnection: close\r\n"), "one connection is one request");
    lab.get("/metrics").await;
    assert_eq!(lab.asked.load(Ordering::Relaxed), 2, "a later scrape gets later counters");
    lab.stop().await;
}

#[tokio::test]
async fn paths_are_three() {
    let lab = lab(Limits::DEFAULT, ALWAYS, 0).await;
    let (status, response) = lab.get("/").await;
    assert_eq!(status, 200);
    assert!(response.contains("<a href=\"/metrics\">"));
    let (status, response) = lab.get("/healthz").await;
    assert_eq!((status, body(&response)), (200, "ok\n"));
    for path in ["/metric", "/metrics/", "/../etc/passwd", "/healthz/x"] {
        assert_eq!(lab.get(path).await.0, 404, "{path}");
    }
    let response =
        lab.send("POST /metrics HTTP/1.1\r\nHost: lab\r\nContent-Length: 0\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
    lab.stop().await;
}

#[tokio::test]
async fn garbage_is_refused_and_the_next_scrape_is_served() {
    let lab = lab(Limits::DEFAULT, ALWAYS, 0).await;
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    let garbage: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        endless.as_bytes(),
    ];
    for bytes in garbage {
        let response = lab.send(bytes).await;
        let refused = response.is_empty() || response.starts_with("HTTP/1.1 4");
        assert!(
            refused,
            "{:?}: {response}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(40)])
        );
    }
    assert_eq!(lab.get("/metrics").await.0, 200);
    assert_eq!(lab.asked.load(Ordering::Relaxed), 1, "garbage must not reach the engine");
    lab.stop().await;
}

#[tokio::test]
async fn a_silent_client_is_sent_away() {
    let limits =
        Limits { head_timeout: SHORT, connection_timeout: PATIENCE * 2, ..Limits::DEFAULT };
    let lab = lab(limits, ALWAYS, 0).await;
    for start in ["", "GET /metrics HTTP/1.1\r\nHos"] {
        let response = lab.send(start).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 408 "), "{response}");
    }
    assert_eq!(lab.asked.load(Ordering::Relaxed), 0);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_scrapes_at_once_are_answered_by_few_questions() {
    let lab = Arc::new(lab(Limits::DEFAULT, ALWAYS, 0).await);
    let mut scrapes = JoinSet::new();
    for _ in 0..1000 {
        let lab = lab.clone();
        scrapes.spawn(async move { lab.get("/metrics").await });
    }
    let mut served = 0;
    while let Some(scrape) = scrapes.join_next().await {
        let (status, response) = scrape.unwrap();
        match status {
            200 => {
                served += 1;
                assert!(body(&response).ends_with('\n'));
            }
            503 => assert_eq!(body(&response), "too many connections at once: try again\n"),
            other => panic!("{other}: {response}"),
        }
    }
    assert!(served >= Limits::DEFAULT.connections_max, "{served} were served");
    assert_eq!(lab.get("/metrics").await.0, 200);
    Arc::into_inner(lab).unwrap().stop().await;
}

/// The first asks alone; all who come while it waits share the second answer.
#[tokio::test]
async fn scrapes_that_wait_share_one_answer() {
    const WAITING: usize = 20;
    let lab = Arc::new(lab(Limits::DEFAULT, 0, 0).await);
    let mut scrapes = JoinSet::new();
    for _ in 0..=WAITING {
        let mut stream = lab.connect().await;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
        scrapes.spawn(async move { read_to_end(&mut stream).await });
    }
    lab.arrived.notified().await;
    // One thread: when the engine's task has run dry, all requests that are there were taken.
    yield_often().await;
    lab.answers.add_permits(ALWAYS);
    while let Some(response) = scrapes.join_next().await {
        assert!(response.unwrap().starts_with("HTTP/1.1 200 "));
    }
    let asked = lab.asked.load(Ordering::Relaxed);
    assert!((1..=3).contains(&asked), "{asked} questions for {} scrapes", WAITING + 1);
    Arc::into_inner(lab).unwrap().stop().await;
}

#[tokio::test]
async fn one_connection_too_many_gets_503() {
    let limits = Limits { connections_max: 1, refusals_max: 1, ..Limits::DEFAULT };
    let lab = lab(limits, 0, 0).await;
    let mut first = lab.connect().await;
    first.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    lab.arrived.notified().await;
    for _ in 0..3 {
        let (status, response) = lab.get("/metrics").await;
        assert_eq!((status, body(&response)), (503, "too many connections at once: try again\n"));
    }
    lab.answers.add_permits(1);
    assert!(read_to_end(&mut first).await.starts_with("HTTP/1.1 200 "));
    lab.answers.add_permits(1);
    assert_eq!(lab.get("/metrics").await.0, 200, "its place is free again");
    lab.stop().await;
}

#[tokio::test]
async fn connections_beyond_wait_for_a_place() {
    let limits = Limits { connections_max: 1, refusals_max: 1, ..Limits::DEFAULT };
    let lab = lab(limits, 0, 0).await;
    let mut first = lab.connect().await;
    first.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    lab.arrived.notified().await;
    let silent = lab.connect().await;
    let mut third = lab.connect().await;
    third.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    // One thread: were it taken at once, it would be by now.
    yield_often().await;
    lab.answers.add_permits(1);
    assert!(read_to_end(&mut first).await.starts_with("HTTP/1.1 200 "));
    assert!(read_to_end(&mut third).await.starts_with("HTTP/1.1 200 "));
    drop(silent);
    lab.stop().await;
}

async fn yield_often() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_makes_a_503() {
    let limits = Limits { answer_timeout: SHORT, ..Limits::DEFAULT };
    let lab = lab(limits, 0, 0).await;
    let (status, response) = lab.get("/metrics").await;
    assert_eq!(status, 503);
    assert!(body(&response).starts_with("the daemon has not answered within 200ms"), "{response}");
    lab.stop().await;
}

#[tokio::test]
async fn an_engine_that_is_gone_makes_a_503() {
    let (engine, commands) = EngineHandle::channel();
    drop(commands);
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(listener, engine, Limits::DEFAULT, shutdown.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    let response = read_to_end(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert_eq!(body(&response), "the daemon is shutting down\n");
    shutdown.cancel();
    timeout(PATIENCE, server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_scrape_during_shutdown_is_answered_and_the_next_is_refused() {
    let late = PATIENCE * 2;
    let limits = Limits {
        head_timeout: late,
        connection_timeout: late,
        shutdown_timeout: late,
        ..Limits::DEFAULT
    };
    let lab = lab(limits, 0, 0).await;
    let mut waiting = lab.connect().await;
    waiting.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n").await.unwrap();
    lab.arrived.notified().await;
    let mut silent = lab.connect().await;
    yield_often().await; // it is accepted now
    lab.shutdown.cancel();
    let response = read_to_end(&mut waiting).await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert_eq!(body(&response), "the daemon is shutting down\n");
    assert_eq!(read_to_end(&mut silent).await, "");
    let address = lab.address;
    lab.stop().await;
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_the_remedy() {
    let taken = bind("127.0.0.1:0".parse().unwrap()).await.unwrap().into_std().unwrap();
    let address = taken.local_addr().unwrap();
    let error = bind(address).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "cannot serve metrics on {address}: Address already in use (os error 98); choose \
             another address with --metrics ADDR:PORT, or none with --metrics off"
        )
    );
    assert_eq!(url("[::1]:9184".parse().unwrap()), "http://[::1]:9184/metrics");
}

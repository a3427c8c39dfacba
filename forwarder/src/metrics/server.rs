//! HTTP: one connection is one request, and everything about it is bounded.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
    serve::Listener,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::exposition;
use crate::engine::{Command, EngineHandle, Refusal};

/// What clients may take of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are served at once. A connection carries one request, so these are also
    /// the scrapes at once.
    pub connections_max: usize,
    /// Connections beyond, which are answered with 503. Still more wait in the kernel's backlog.
    pub refusals_max: usize,
    /// Bytes of a request's head, and of what is read ahead.
    pub head_bytes_max: usize,
    /// Bytes of an answer that the kernel holds for a client; it doubles the number.
    pub send_bytes_max: usize,
    /// For the request's head to come in.
    pub head_timeout: Duration,
    /// For the engine to answer.
    pub answer_timeout: Duration,
    /// For a whole connection, from accept to close: a client that does not read is cut off.
    pub connection_timeout: Duration,
    /// For open connections to end when the daemon does.
    pub shutdown_timeout: Duration,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        connections_max: 64,
        refusals_max: 64,
        head_bytes_max: 16 << 10,
        send_bytes_max: 256 << 10,
        head_timeout: Duration::from_secs(5),
        answer_timeout: Duration::from_secs(5),
        connection_timeout: Duration::from_secs(15),
        shutdown_timeout: Duration::from_secs(1),
    };
}

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics on {address}: {error}{}; choose another address with --metrics ADDR:PORT, or none with --metrics off",
    hint(*address, error)
)]
pub struct BindError {
    pub address: SocketAddr,
    pub error: io::Error,
}

/// A new network namespace has no loopback address until its loopback is up.
fn hint(address: SocketAddr, error: &io::Error) -> &'static str {
    let is_missing = error.kind() == io::ErrorKind::AddrNotAvailable;
    if is_missing && address.ip().is_loopback() { " (`ip link set lo up`?)" } else { "" }
}

/// Binds the address, so that a mistake in it ends the start of the daemon.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|error| BindError { address, error })
}

/// What to type into a browser, for `status` and the end of the start.
pub fn url(address: SocketAddr) -> String {
    format!("http://{address}/metrics")
}

/// Serves until `shutdown`. Then no new connection is taken, and whoever still waits for an answer
/// gets a 503.
pub async fn serve(
    mut listener: TcpListener,
    engine: EngineHandle,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let endpoint = Endpoint { engine, limits, shutdown: shutdown.clone(), latest: Arc::default() };
    let served = router(endpoint);
    let refused: Router = Router::new().fallback(async || Unavailable::TooMany);
    let mut connections = JoinSet::new();
    let sockets_max = limits.connections_max + limits.refusals_max;
    let places = Arc::new(Semaphore::new(limits.connections_max));
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            (stream, _) = Listener::accept(&mut listener), if connections.len() < sockets_max => stream,
        };
        let place = places.clone().try_acquire_owned().ok();
        let router = if place.is_some() { served.clone() } else { refused.clone() };
        let shutdown = shutdown.clone();
        connections.spawn(async move {
            serve_connection(stream, router, limits, shutdown).await;
            drop(place);
        });
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.shutdown_timeout, ended).await.is_err() {
        connections.shutdown().await;
    }
}

/// `axum::serve` would do it, but has no timer, so that a silent client would stay forever.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    shutdown: CancellationToken,
) {
    // What was written to a client that does not read stays in the kernel after the close: not
    // forever, and not much.
    let socket = SockRef::from(&stream);
    let _ = socket.set_tcp_user_timeout(Some(limits.connection_timeout));
    let _ = socket.set_send_buffer_size(limits.send_bytes_max);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes_max)
        .keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match timeout(limits.connection_timeout, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a metrics connection failed"),
        Err(_) => tracing::debug!("a metrics connection was too slow"),
    }
}

fn router(endpoint: Endpoint) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .with_state(endpoint)
}

async fn index() -> Html<&'static str> {
    Html(concat!(
        "<!doctype html>\n<html lang=\"en\">\n<title>forwarder</title>\n",
        "<h1>forwarder</h1>\n<p>Counters for Prometheus: <a href=\"/metrics\">/metrics</a></p>\n",
        "<p>Whether the daemon answers: <a href=\"/healthz\">/healthz</a></p>\n</html>\n",
    ))
}

async fn metrics(State(endpoint): State<Endpoint>) -> Response {
    match endpoint.within_limits(endpoint.text()).await {
        Ok(text) => ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response(),
        Err(unavailable) => unavailable.into_response(),
    }
}

async fn healthz(State(endpoint): State<Endpoint>) -> Response {
    let status = async { Ok(endpoint.engine.ask(Command::Status).await?) };
    match endpoint.within_limits(status).await {
        Ok(_) => "ok\n".into_response(),
        Err(unavailable) => unavailable.into_response(),
    }
}

#[derive(Clone)]
struct Endpoint {
    engine: EngineHandle,
    limits: Limits,
    shutdown: CancellationToken,
    latest: Arc<Mutex<Option<Latest>>>,
}

struct Latest {
    asked: Instant,
    text: Bytes,
}

impl Endpoint {
    /// Scrapes that wait while another one asks the engine share the next answer: however many
    /// come, the engine is asked once at a time, and nobody gets counters older than his request.
    async fn text(&self) -> Result<Bytes, Unavailable> {
        let arrived = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some(latest) = latest.as_ref().filter(|latest| latest.asked >= arrived) {
            return Ok(latest.text.clone());
        }
        *latest = None;
        let asked = Instant::now();
        let snapshot = self.engine.ask(Command::Stats).await?;
        let status = self.engine.ask(Command::Status).await?;
        let text = tokio::task::spawn_blocking(|| exposition::text(snapshot, status));
        let text = text.await.map_err(|_| Unavailable::Encoding)?;
        let text = Bytes::from(text.map_err(|fmt::Error| Unavailable::Encoding)?);
        *latest = Some(Latest { asked, text: text.clone() });
        Ok(text)
    }

    async fn within_limits<T>(
        &self,
        answer: impl Future<Output = Result<T, Unavailable>>,
    ) -> Result<T, Unavailable> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(Unavailable::ShuttingDown),
            answer = timeout(self.limits.answer_timeout, answer) => {
                answer.unwrap_or(Err(Unavailable::NoAnswer(self.limits.answer_timeout)))
            }
        }
    }
}

/// Why there are no counters now.
#[derive(Debug, thiserror::Error)]
enum Unavailable {
    #[error("too many connections at once: try again")]
    TooMany,
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("the daemon has not answered within {0:?}: it is busy, or stuck; see its log")]
    NoAnswer(Duration),
    #[error("the counters could not be written as text")]
    Encoding,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n")).into_response()
    }
}

#[cfg(test)]
mod tests;

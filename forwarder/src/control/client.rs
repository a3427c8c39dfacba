//! The command line's end of the control socket. It blocks: a command does one thing at a time.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio_util::codec::{Decoder, Encoder};

use super::{
    chunk::{Chunk, load_chunks},
    frame::{FRAME_MAX, FrameCodec, FrameError},
    protocol::{ANSWER_MAX, Hello, Request, Response, decode, encode},
};
use crate::{
    engine::{AuditPage, Refusal, Status},
    prefix::Prefix,
    route::{Existing, NeighbourEntry, Route, RouteEntry, Selector},
    snapshot::Snapshot,
};

/// How long the daemon may take: an answer to a load of a million routes is not instant.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const READ_SIZE: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: the file is not there, or a dead daemon has left it.
    #[error("no forwarder listens on {path}")]
    NoDaemon { path: PathBuf, stale: bool },
    #[error(
        "{path} is not open to this user: use sudo; commands that change nothing are for members of the group that owns it too"
    )]
    Forbidden { path: PathBuf },
    #[error("{0}")]
    Mismatch(String),
    #[error(transparent)]
    Refused(Refusal),
    #[error("the daemon did not answer within {} s: see its log", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the daemon ended the connection before it answered: see its log")]
    Ended,
    #[error("the daemon's answer makes no sense: {0}")]
    Nonsense(String),
    #[error("the connection to the daemon failed: {0}")]
    Io(io::Error),
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    buffer: BytesMut,
}

impl Client {
    /// Connects, and makes sure that both sides speak the same protocol.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let socket = open(path).map_err(|error| {
            let path = path.to_owned();
            match error.kind() {
                ErrorKind::NotFound => ClientError::NoDaemon { path, stale: false },
                ErrorKind::ConnectionRefused => ClientError::NoDaemon { path, stale: true },
                ErrorKind::PermissionDenied => ClientError::Forbidden { path },
                ErrorKind::WouldBlock => ClientError::TimedOut,
                _ => ClientError::Io(error),
            }
        })?;
        let mut client = Self { socket, buffer: BytesMut::new() };
        let ours = Hello::ours();
        match client.ask(&Request::Hello(ours.clone()))? {
            Response::Hello(daemon) => match Hello::mismatch(&ours, &daemon) {
                Some(mismatch) => Err(ClientError::Mismatch(mismatch)),
                None => Ok(client),
            },
            _ => out_of_turn(),
        }
    }

    pub fn status(&mut self) -> Result<Status, ClientError> {
        match self.ask(&Request::Status)? {
            Response::Status(status) => Ok(status),
            _ => out_of_turn(),
        }
    }

    pub fn stats(&mut self) -> Result<Snapshot, ClientError> {
        match self.ask(&Request::Stats)? {
            Response::Stats(snapshot) => Ok(snapshot),
            _ => out_of_turn(),
        }
    }

    /// Answers with the route as installed.
    pub fn route_add(
        &mut self,
        route: Route,
        existing: Existing,
        xdp_only: bool,
    ) -> Result<RouteEntry, ClientError> {
        self.ask_route(&Request::RouteAdd { route, existing, xdp_only })
    }

    /// Answers with the route as it was.
    pub fn route_delete(&mut self, selector: Selector) -> Result<RouteEntry, ClientError> {
        self.ask_route(&Request::RouteDelete(selector))
    }

    /// Compares some prefixes, behind one or from the first, with Linux's answer.
    pub fn audit(&mut self, after: Option<Prefix>) -> Result<AuditPage, ClientError> {
        match self.ask(&Request::Audit(after))? {
            Response::Audit(page) => Ok(page),
            _ => out_of_turn(),
        }
    }

    /// Answers with the number of routes that are gone.
    pub fn route_flush(&mut self, selector: Selector) -> Result<u64, ClientError> {
        self.ask_count(&Request::RouteFlush(selector))
    }

    /// Empty where Linux decides.
    pub fn route_get(&mut self, destination: IpAddr) -> Result<Vec<RouteEntry>, ClientError> {
        self.ask_routes(&Request::RouteGet(destination))
    }

    /// All of them or none; answers with their number.
    ///
    /// Calls `sent` with the number of routes that are on their way.
    pub fn route_load(
        &mut self,
        routes: &[Route],
        existing: Existing,
        xdp_only: bool,
        mut sent: impl FnMut(usize),
    ) -> Result<u64, ClientError> {
        match self.ask(&Request::RouteLoad { existing, xdp_only })? {
            Response::Ready => {}
            _ => return out_of_turn(),
        }
        let mut count = 0;
        for chunk in load_chunks(routes) {
            self.send(&Request::LoadChunk(Chunk::from(chunk)))?;
            count += chunk.len();
            sent(count);
        }
        self.ask_count(&Request::LoadCommit(routes.len() as u64))
    }

    pub fn route_show(&mut self, selector: Selector) -> Result<Vec<RouteEntry>, ClientError> {
        self.ask_routes(&Request::RouteShow(selector))
    }

    /// Calls `show` with the routes as they come; entries of one prefix come together. The daemon
    /// waits only so long for a reader that pauses, so what comes meanwhile is kept here.
    pub fn route_stream<E: From<ClientError>>(
        &mut self,
        selector: Selector,
        mut show: impl FnMut(&[RouteEntry]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.send(&Request::RouteShow(selector))?;
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                loop {
                    match self.receive()? {
                        Response::End => return Ok(()),
                        Response::Routes(routes) => {
                            // A reader that has gone wants no more.
                            let Ok(()) = sender.send(routes) else { return Ok(()) };
                        }
                        _ => return out_of_turn(),
                    }
                }
            });
            for routes in receiver {
                show(&routes)?;
            }
            reader.join().unwrap_or_else(|_| out_of_turn()).map_err(E::from)
        })
    }

    pub fn neighbours(&mut self) -> Result<Vec<NeighbourEntry>, ClientError> {
        self.ask_list(&Request::Neighbours, |response| match response {
            Response::Neighbours(neighbours) => Some(neighbours),
            _ => None,
        })
    }

    /// Answers when nothing is left of the daemon's programs and maps.
    pub fn unload(&mut self) -> Result<(), ClientError> {
        match self.ask(&Request::Unload)? {
            Response::Done => Ok(()),
            _ => out_of_turn(),
        }
    }

    fn ask_route(&mut self, request: &Request) -> Result<RouteEntry, ClientError> {
        match self.ask(request)? {
            Response::Route(entry) => Ok(entry),
            _ => out_of_turn(),
        }
    }

    fn ask_routes(&mut self, request: &Request) -> Result<Vec<RouteEntry>, ClientError> {
        self.ask_list(request, |response| match response {
            Response::Routes(routes) => Some(routes),
            _ => None,
        })
    }

    fn ask_count(&mut self, request: &Request) -> Result<u64, ClientError> {
        match self.ask(request)? {
            Response::Count(count) => Ok(count),
            _ => out_of_turn(),
        }
    }

    fn ask_list<T>(
        &mut self,
        request: &Request,
        some_of: impl Fn(Response) -> Option<Vec<T>>,
    ) -> Result<Vec<T>, ClientError> {
        self.send(request)?;
        let mut all = Vec::new();
        loop {
            match self.receive()? {
                Response::End => return Ok(all),
                response => match some_of(response) {
                    Some(some) => all.extend(some),
                    None => return out_of_turn(),
                },
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.send(request)?;
        self.receive()
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut frame = BytesMut::new();
        FrameCodec
            .encode(&encode(request), &mut frame)
            .map_err(|error| ClientError::Nonsense(error.to_string()))?;
        match self.socket.write_all(&frame) {
            Ok(()) => Ok(()),
            // The daemon has closed its end. Before that it has said why.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                self.receive()?;
                Err(ClientError::Ended)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The next response, out of one frame or several. A refusal is an error.
    fn receive(&mut self) -> Result<Response, ClientError> {
        let response = match read_response(&self.receive_frame()?)? {
            Response::Parts(count) => {
                if count as usize > ANSWER_MAX / FRAME_MAX {
                    return Err(ClientError::Nonsense(format!("it has {count} parts")));
                }
                let mut payload = BytesMut::new();
                for _ in 0..count {
                    payload.extend_from_slice(&self.receive_frame()?);
                }
                read_response(&payload)?
            }
            response => response,
        };
        match response {
            Response::Refused(refusal) => Err(ClientError::Refused(refusal)),
            response => Ok(response),
        }
    }

    fn receive_frame(&mut self) -> Result<Bytes, ClientError> {
        loop {
            match FrameCodec.decode(&mut self.buffer) {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(FrameError::Io(error)) => return Err(failed(error)),
                Err(error) => return Err(ClientError::Nonsense(error.to_string())),
            }
            let mut bytes = [0; READ_SIZE];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Ended),
                Ok(size) => self.buffer.extend_from_slice(bytes.get(..size).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    // Blocks while the daemon's backlog is full, for as long as the write timeout says.
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

fn read_response(payload: &[u8]) -> Result<Response, ClientError> {
    decode(payload).map_err(|error| ClientError::Nonsense(error.to_string()))
}

fn failed(error: io::Error) -> ClientError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::TimedOut,
        ErrorKind::ConnectionReset => ClientError::Ended,
        _ => ClientError::Io(error),
    }
}

fn out_of_turn<T>() -> Result<T, ClientError> {
    Err(ClientError::Nonsense("it does not belong to the question".to_owned()))
}

//! The daemon's end of the control socket: who may connect, and how many at once.

use std::{
    fs::{DirBuilder, Permissions, remove_file, rename, set_permissions},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use nix::unistd::Group;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::{
    net::{UnixListener, UnixStream},
    select,
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{codec::Encoder, sync::CancellationToken, task::TaskTracker};

use super::{
    connection::Connection,
    frame::FrameCodec,
    protocol::{Response, encode},
};
use crate::engine::EngineHandle;

/// Connections that wait to be accepted.
const BACKLOG_MAX: i32 = 1024;
const SOCKET_MODE: u32 = 0o660;
const DIRECTORY_MODE: u32 = 0o755;
/// How long answers that are under way may take when the daemon ends.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// A pause after a failed accept: it fails again at once where file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket's name until all is set.
const UNFINISHED: &str = ".control.new";

/// How clients are treated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are served at once, of the user who may change things and, as many again,
    /// of the others; one more is turned away.
    pub connections: usize,
    /// How long one frame may take to come or to go.
    pub idle: Duration,
    /// The user who may change things.
    pub writer_uid: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 64, idle: Duration::from_secs(10), writer_uid: 0 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "a forwarder already listens on {path}: end it with `forwarder unload`, or give this one another --name"
    )]
    InUse { path: PathBuf },
    #[error("cannot listen on {path}")]
    Socket { path: PathBuf, source: io::Error },
}

/// A control socket that nobody is served on yet.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    file: SocketFile,
    limits: Limits,
}

impl Server {
    /// Listens on `path`; a socket file that a dead daemon has left is replaced. Mode and owner are
    /// set before the first client can connect. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Refuses when somebody listens there already.
    pub fn bind(path: &Path, group: &str, limits: Limits) -> Result<Self, BindError> {
        if is_served(path) {
            return Err(BindError::InUse { path: path.to_owned() });
        }
        let listener = listen(path, group)
            .map_err(|source| BindError::Socket { path: path.to_owned(), source })?;
        Ok(Self { listener, file: SocketFile(path.to_owned()), limits })
    }

    /// Serves clients until `shutdown`, then lets answers that are under way end.
    pub async fn serve(self, engine: EngineHandle, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let writers = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let stream = select! {
                () = shutdown.cancelled() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection to the control socket");
                        sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            // Whoever may only read must not lock out whoever may end the daemon.
            let is_writer =
                stream.peer_cred().is_ok_and(|peer| peer.uid() == self.limits.writer_uid);
            let places = if is_writer { &writers } else { &places };
            let Ok(place) = Arc::clone(places).try_acquire_owned() else {
                turn_away(stream, self.limits.connections);
                continue;
            };
            let connection = Connection::new(stream, engine.clone(), self.limits, shutdown.clone());
            connections.spawn(async move {
                connection.run().await;
                drop(place);
            });
        }
        drop((self.listener, self.file));
        connections.close();
        if timeout(DRAIN_TIME, connections.wait()).await.is_err() {
            tracing::warn!(clients = connections.len(), "left clients without their answer");
        }
    }
}

/// Removed when the server ends, however it ends.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the control socket");
        }
    }
}

/// Whether somebody listens on this socket: a file alone means nothing after `kill -9`.
pub fn is_served(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    // A full backlog belongs to somebody who is alive, too.
    connect().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
}

/// Removes the socket that a dead daemon has left, finished or not.
pub fn remove_left(path: &Path) {
    let _ = remove_file(path);
    let _ = remove_file(path.with_file_name(UNFINISHED));
}

fn listen(path: &Path, group: &str) -> io::Result<UnixListener> {
    // Renaming below does not look whether clients could still give this path to the kernel.
    SockAddr::unix(path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;

    // Bound under a name of its own, and listening only when all is set.
    let unfinished = directory.join(UNFINISHED);
    let _ = remove_file(&unfinished);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&unfinished)?)?;
    let finish = || {
        set_permissions(&unfinished, Permissions::from_mode(SOCKET_MODE))?;
        if let Some(group) = Group::from_name(group)? {
            chown(&unfinished, None, Some(group.gid.as_raw()))?;
        }
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG_MAX)?;
        rename(&unfinished, path)
    };
    if let Err(error) = finish() {
        let _ = remove_file(&unfinished);
        return Err(error);
    }
    UnixListener::from_std(std::os::unix::net::UnixListener::from(OwnedFd::from(socket)))
}

/// Tells one client too many why it is not served. The socket is new, so the frame finds room, and
/// nobody has to wait.
fn turn_away(stream: UnixStream, connections: usize) {
    let message = format!("{connections} clients are connected already: try again in a moment");
    let mut frame = BytesMut::new();
    let sent = FrameCodec
        .encode(&encode(&Response::refused(message)), &mut frame)
        .map_err(io::Error::other)
        .and_then(|()| stream.into_std()?.write_all(&frame));
    if let Err(error) = sent {
        tracing::debug!(%error, "turned a client away without a word");
    }
}

//! One client of the control socket, from its hello to its end.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    select,
    time::timeout,
};
use tokio_util::{
    codec::{Decoder, Encoder},
    sync::CancellationToken,
};

use super::{
    chunk::Shared,
    frame::{FrameCodec, FrameError},
    protocol::{
        Hello, ITEMS_PER_FRAME, LOAD_ROUTES_MAX, Request, Response, decode, encode_response,
    },
    server::Limits,
};
use crate::{
    engine::{Command, EngineHandle, Refusal, RoutePage},
    route::{Existing, Selector},
};

pub(super) struct Connection {
    stream: UnixStream,
    /// What has been read and is not a whole frame yet.
    buffer: BytesMut,
    engine: EngineHandle,
    limits: Limits,
    shutdown: CancellationToken,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the client has closed it, or the daemon ends")]
    Closed,
    /// The client is told before.
    #[error("{0}")]
    Refused(String),
    #[error("the client did not take its answer within {0} ms")]
    Slow(u128),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Connection {
    pub(super) fn new(
        stream: UnixStream,
        engine: EngineHandle,
        limits: Limits,
        shutdown: CancellationToken,
    ) -> Self {
        Self { stream, buffer: BytesMut::new(), engine, limits, shutdown }
    }

    pub(super) async fn run(mut self) {
        let Err(end) = self.talk().await;
        if let End::Refused(message) = &end {
            // It may be gone, or not listen: that makes no difference any more.
            let _ = self.send(&Response::refused(message)).await;
        }
        tracing::debug!(%end, "a client's connection has ended");
    }

    async fn talk(&mut self) -> Result<std::convert::Infallible, End> {
        let Request::Hello(client) = self.receive().await? else {
            return Err(End::Refused("the first frame must be a hello".to_owned()));
        };
        let ours = Hello::ours();
        let mismatch = Hello::mismatch(&client, &ours);
        self.send(&Response::Hello(ours)).await?;
        if let Some(mismatch) = mismatch {
            return Err(End::Refused(mismatch));
        }
        loop {
            let request = self.receive().await?;
            match self.forbidden(&request)? {
                Some(why) => self.send(&Response::refused(why)).await?,
                None => self.answer(request).await?,
            }
        }
    }

    /// Whoever can connect may read; only one user may change things.
    fn forbidden(&self, request: &Request) -> Result<Option<String>, End> {
        if let Some(change) = request.changes()
            && self.stream.peer_cred()?.uid() != self.limits.writer_uid
        {
            return Ok(Some(format!("`{change}` is for root: run it with sudo")));
        }
        Ok(request.flaw().map(str::to_owned))
    }

    async fn answer(&mut self, request: Request) -> Result<(), End> {
        let engine = self.engine.clone();
        let answer = match request {
            Request::Status => engine.ask(Command::Status).await.map(Response::Status),
            Request::Stats => engine.ask(Command::Stats).await.map(Response::Stats),
            Request::RouteAdd { route, existing, xdp_only } => engine
                .ask(|reply| Command::RouteAdd { route, existing, xdp_only, reply })
                .await
                .map(Response::Route),
            Request::RouteDelete(selector) => engine
                .ask(|reply| Command::RouteDelete { selector, reply })
                .await
                .map(Response::Route),
            Request::RouteFlush(selector) => engine
                .ask(|reply| Command::RouteFlush { selector, reply })
                .await
                .map(Response::Count),
            Request::Audit(after) => {
                engine.ask(|reply| Command::Audit { after, reply }).await.map(Response::Audit)
            }
            Request::Unload => engine.ask(Command::Unload).await.map(|()| Response::Done),
            Request::RouteShow(selector) => return self.show_routes(selector).await,
            Request::RouteGet(destination) => {
                let routes = engine.ask(|reply| Command::RouteGet { destination, reply }).await;
                return self.send_list(routes, Response::Routes).await;
            }
            Request::Neighbours => return self.show_neighbours().await,
            Request::RouteLoad { existing, xdp_only } => {
                return self.load(existing, xdp_only).await;
            }
            Request::Hello(_) | Request::LoadChunk(_) | Request::LoadCommit(_) => {
                return Err(End::Refused("this frame has no place here".to_owned()));
            }
        };
        self.send(&answer.unwrap_or_else(Response::Refused)).await
    }

    async fn show_routes(&mut self, selector: Selector) -> Result<(), End> {
        let mut after = None;
        loop {
            let selector = selector.clone();
            let page = self.engine.ask(|reply| Command::RouteShow { selector, after, reply }).await;
            match page {
                Err(refusal) => return self.send(&Response::Refused(refusal)).await,
                Ok(RoutePage { entries, more_after }) => {
                    if !entries.is_empty() {
                        self.send(&Response::Routes(entries)).await?;
                    }
                    after = more_after;
                }
            }
            if after.is_none() {
                return self.send(&Response::End).await;
            }
        }
    }

    async fn show_neighbours(&mut self) -> Result<(), End> {
        let neighbours = self.engine.ask(Command::Neighbours).await;
        self.send_list(neighbours, Response::Neighbours).await
    }

    async fn load(&mut self, existing: Existing, xdp_only: bool) -> Result<(), End> {
        self.send(&Response::Ready).await?;
        let (mut routes, mut shared) = (Vec::new(), Shared::default());
        loop {
            match self.receive().await? {
                Request::LoadChunk(chunk) if routes.len() + chunk.len() <= LOAD_ROUTES_MAX => {
                    let chunk = chunk.into_routes(&mut shared);
                    let broken = || {
                        End::Refused("a part of the load makes no sense: it has no routes, or too long a list".to_owned())
                    };
                    routes.extend(chunk.ok_or_else(broken)?);
                }
                Request::LoadChunk(_) => {
                    let message = format!("a load has at most {LOAD_ROUTES_MAX} routes");
                    return Err(End::Refused(message));
                }
                Request::LoadCommit(count) if count == routes.len() as u64 => break,
                _ => return Err(End::Refused("the load was not finished".to_owned())),
            }
        }
        let load = |reply| Command::RouteLoad { routes, existing, xdp_only, reply };
        let count = self.engine.ask(load).await;
        self.send(&count.map_or_else(Response::Refused, Response::Count)).await
    }

    async fn send_list<T>(
        &mut self,
        list: Result<Vec<T>, Refusal>,
        response: fn(Vec<T>) -> Response,
    ) -> Result<(), End> {
        let mut rest = match list {
            Ok(list) => list.into_iter(),
            Err(refusal) => return self.send(&Response::Refused(refusal)).await,
        };
        while rest.len() > 0 {
            let some = rest.by_ref().take(ITEMS_PER_FRAME).collect();
            self.send(&response(some)).await?;
        }
        self.send(&Response::End).await
    }

    async fn send(&mut self, response: &Response) -> Result<(), End> {
        for payload in encode_response(response) {
            let mut frame = BytesMut::new();
            FrameCodec.encode(&payload, &mut frame).map_err(io::Error::other)?;
            timeout(self.limits.idle, self.stream.write_all(&frame))
                .await
                .map_err(|_| End::Slow(self.limits.idle.as_millis()))??;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Request, End> {
        let shutdown = self.shutdown.clone();
        let idle = self.limits.idle;
        let frame = select! {
            () = shutdown.cancelled() => return Err(End::Closed),
            frame = timeout(idle, self.read_frame()) => frame,
        };
        let frame = match frame {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return Err(End::Closed),
            Ok(Err(FrameError::Io(error))) => return Err(error.into()),
            Ok(Err(error)) => return Err(End::Refused(error.to_string())),
            Err(_) if self.buffer.is_empty() => {
                return Err(End::Refused(format!("nothing was asked for {} ms", idle.as_millis())));
            }
            Err(_) => {
                let message = format!("a frame did not end within {} ms", idle.as_millis());
                return Err(End::Refused(message));
            }
        };
        decode(&frame).map_err(|error| End::Refused(format!("not a request: {error}")))
    }

    /// `None` at the end. May be dropped at any await: what has been read stays in the buffer.
    async fn read_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            if let Some(frame) = FrameCodec.decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return FrameCodec.decode_eof(&mut self.buffer);
            }
        }
    }
}

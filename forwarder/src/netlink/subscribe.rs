//! Follows the kernel: first the complete lists, then every change; the lists again whenever a
//! notification was lost.

use std::{convert::Infallible, io, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use super::{
    decode::{Change, change},
    event::Event,
    lists::{self, ListError},
    local_routes::LocalRoutes,
    socket::Socket,
    wire::messages,
};

/// Of notifications, a socket: some 50,000.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Before everything is read again, so that a storm of notifications is not answered by one of
/// dumps.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);
/// After a link went down, until the local table is read again: IPv4 routes vanish then without a
/// notification, and only after the link's.
const SILENT_REMOVAL: Duration = Duration::from_millis(200);

const ROUTING_GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];
const NEIGHBOUR_GROUPS: [u32; 1] = [libc::RTNLGRP_NEIGH];

#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error("cannot subscribe to the kernel's network notifications: {0}")]
    Socket(#[source] io::Error),
    #[error(transparent)]
    List(#[from] ListError),
    #[error("lost network notifications of the kernel: {0}")]
    Lost(#[source] io::Error),
}

/// The lists of one moment, and all that has changed since, waiting in the sockets. Neighbours come
/// by a socket of their own: a storm of them does not lose a link or an address.
///
/// A change from just before a list was read is told again after it: the last word on each thing is
/// the truth. Events of the two sockets are not ordered with each other: a neighbour may come before
/// its link. The kernel does not tell of a neighbour that it only begins to resolve.
pub struct Subscription {
    routing: Socket,
    neighbours: Socket,
    requests: Socket,
    /// Until they are sent.
    lists: Vec<Event>,
    local_table: LocalTable,
    receive_buffer: usize,
}

/// Why following ended.
enum End {
    /// Nobody listens any more.
    Closed,
    Failed(SubscribeError),
}

impl Subscription {
    /// In the network namespace of the calling thread; so must [`Self::run`] be.
    pub async fn open() -> Result<Self, SubscribeError> {
        Self::with_receive_buffer(RECEIVE_BUFFER_BYTES).await
    }

    /// Sends all lists, then changes as they come, until the receiver is dropped.
    pub async fn run(mut self, events: mpsc::Sender<Event>) {
        loop {
            match self.follow(&events).await {
                Err(End::Closed) => return,
                Err(End::Failed(error)) => warn!("{error}: reading everything again"),
                Ok(never) => match never {},
            }
            self = loop {
                sleep(RESYNC_PAUSE).await;
                if events.is_closed() {
                    return;
                }
                match Self::with_receive_buffer(self.receive_buffer).await {
                    Ok(fresh) => break fresh,
                    Err(error) => warn!("{error}: trying again"),
                }
            };
        }
    }

    pub(super) async fn with_receive_buffer(bytes: usize) -> Result<Self, SubscribeError> {
        // Before the lists are read, so that nothing falls in between.
        let subscribe =
            |groups: &[u32]| Socket::subscribe(groups, bytes).map_err(SubscribeError::Socket);
        let (routing, neighbours) = (subscribe(&ROUTING_GROUPS)?, subscribe(&NEIGHBOUR_GROUPS)?);
        let mut requests =
            Socket::open(netlink_sys::protocols::NETLINK_ROUTE).map_err(SubscribeError::Socket)?;

        let links = lists::links(&mut requests).await?.into_iter().map(|details| details.link);
        let addresses = lists::addresses(&mut requests).await?;
        let local_routes = lists::local_routes(&mut requests).await?;
        let lists = vec![
            Event::Links(links.collect()),
            Event::Addresses(addresses),
            local_routes.list(),
            Event::Neighbours(lists::neighbours(&mut requests).await?),
        ];
        let local_table = LocalTable { routes: local_routes, due: None };
        Ok(Self { routing, neighbours, requests, lists, local_table, receive_buffer: bytes })
    }

    async fn follow(&mut self, events: &mpsc::Sender<Event>) -> Result<Infallible, End> {
        for list in std::mem::take(&mut self.lists) {
            send(events, list).await?;
        }
        loop {
            let due = self.local_table.due;
            let datagram = tokio::select! {
                () = events.closed() => return Err(End::Closed),
                datagram = self.routing.receive() => datagram,
                datagram = self.neighbours.receive() => datagram,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some(list) = self.local_table.read(&mut self.requests).await? {
                        send(events, list).await?;
                    }
                    continue;
                }
            };
            let datagram = datagram.map_err(SubscribeError::Lost)?;
            for change in messages(datagram).filter_map(|message| change(&message)) {
                if let Some(event) = self.local_table.follow(change) {
                    send(events, event).await?;
                }
            }
        }
    }
}

/// The local table as last told, and when it has to be read again.
struct LocalTable {
    routes: LocalRoutes,
    due: Option<Instant>,
}

impl LocalTable {
    fn follow(&mut self, change: Change) -> Option<Event> {
        match change {
            Change::Event(event) => {
                if may_hide_removals(&event) {
                    self.due = Some(Instant::now() + SILENT_REMOVAL);
                }
                Some(event)
            }
            Change::LocalRoute(route) => self.routes.insert(route),
            Change::LocalRouteGone(route) => self.routes.remove(&route),
            Change::LocalRouteReplaced => {
                self.due = Some(Instant::now());
                None
            }
        }
    }

    /// The list, if it is another than was told.
    async fn read(&mut self, requests: &mut Socket) -> Result<Option<Event>, SubscribeError> {
        self.due = None;
        let routes = lists::local_routes(requests).await?;
        if routes == self.routes {
            return Ok(None);
        }
        self.routes = routes;
        Ok(Some(self.routes.list()))
    }
}

fn may_hide_removals(event: &Event) -> bool {
    match event {
        Event::Link(link) => !link.up,
        Event::LinkGone { .. } => true,
        _ => false,
    }
}

async fn send(events: &mpsc::Sender<Event>, event: Event) -> Result<(), End> {
    events.send(event).await.map_err(|_| End::Closed)
}

impl From<SubscribeError> for End {
    fn from(error: SubscribeError) -> Self {
        Self::Failed(error)
    }
}

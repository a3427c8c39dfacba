//! Follows the kernel: first the complete lists, then every change; the lists again whenever a
//! notification was lost.

use std::{collections::HashSet, convert::Infallible, io, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use super::{
    decode::{Change, change},
    event::{Event, KernelRoute, Next, NexthopWay, Position},
    lists::{self, ListError},
    local_routes::LocalRoutes,
    reread::Reread,
    socket::{Part, Socket},
    wire::messages,
};
use crate::prefix::{Family, Prefix};

/// Of notifications, a socket: some 50,000.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Before everything is read again, so that a storm of notifications is not answered by one of
/// dumps.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);
/// After a link went down, until routes are read again: IPv4 routes vanish then without a
/// notification, and only after the link's.
const SILENT_REMOVAL: Duration = Duration::from_millis(200);
/// After any news of a link, until nexthop objects are read again: groups lose the members that
/// cannot be used, and that is not told.
const SILENT_NEXTHOPS: Duration = Duration::from_millis(50);
/// Before routes are read again because somebody asked for it.
const ASKED_PAUSE: Duration = Duration::from_millis(100);

const ROUTING_GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];
/// Where Linux's routes are followed.
const MIRROR_GROUPS: [u32; 3] =
    [libc::RTNLGRP_IPV4_RULE, libc::RTNLGRP_IPV6_RULE, libc::RTNLGRP_NEXTHOP];
const NEIGHBOUR_GROUPS: [u32; 1] = [libc::RTNLGRP_NEIGH];

/// What of the kernel is followed beside links, addresses, local routes and neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The main table, nexthop objects and rules.
    Routes,
    NoRoutes,
}

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
    /// Its number.
    port: u32,
    neighbours: Socket,
    requests: Socket,
    /// Until they are sent.
    lists: Vec<Event>,
    local_routes: LocalRoutes,
    /// Interfaces by which IPv4 routes of the main table leave, or have left.
    egresses: HashSet<u32>,
    due: Due,
    replay: Replay,
    /// Whoever asks by it that routes be read again.
    asked: Arc<Notify>,
    follow: Follow,
    receive_buffer: usize,
}

/// What was told before a list was read to its end, and comes after it: most of it the list has
/// already. That is harmless, but for IPv4 routes in the place of others: which one they have
/// replaced depends on what was there then. So the list is read once more.
#[derive(Default)]
struct Replay {
    /// Behind the last of it; `None`: it is over.
    mark: Option<u32>,
    is_doubtful: bool,
    /// How long the list took.
    took: Duration,
}

/// What is to be read again, and when.
#[derive(Default)]
struct Due {
    locals: Reread,
    routes4: Reread,
    routes6: Reread,
    nexthops: Reread,
    rules: Reread,
}

/// Why following ended.
enum End {
    /// Nobody listens any more.
    Closed,
    Failed(SubscribeError),
}

impl Subscription {
    /// In the network namespace of the calling thread; so must [`Self::run`] be. A notification by
    /// `asked` has the main table read again.
    pub async fn open(follow: Follow, asked: Arc<Notify>) -> Result<Self, SubscribeError> {
        Self::with_receive_buffer(RECEIVE_BUFFER_BYTES, follow, asked).await
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
                match Self::with_receive_buffer(
                    self.receive_buffer,
                    self.follow,
                    Arc::clone(&self.asked),
                )
                .await
                {
                    Ok(fresh) => break fresh,
                    Err(error) => warn!("{error}: trying again"),
                }
            };
        }
    }

    pub(super) async fn with_receive_buffer(
        bytes: usize,
        follow: Follow,
        asked: Arc<Notify>,
    ) -> Result<Self, SubscribeError> {
        // Before the lists are read, so that nothing falls in between.
        let subscribe =
            |groups: &[u32]| Socket::subscribe(groups, bytes).map_err(SubscribeError::Socket);
        let mirror = if follow == Follow::Routes { &MIRROR_GROUPS[..] } else { &[] };
        let routing = subscribe(&[&ROUTING_GROUPS[..], mirror].concat())?;
        let neighbours = subscribe(&NEIGHBOUR_GROUPS)?;
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
        let (egresses, due, replay) = Default::default();
        Ok(Self {
            port: routing.port(),
            routing,
            neighbours,
            requests,
            lists,
            local_routes,
            egresses,
            due,
            replay,
            asked,
            follow,
            receive_buffer: bytes,
        })
    }

    async fn follow(&mut self, events: &mpsc::Sender<Event>) -> Result<Infallible, End> {
        for list in std::mem::take(&mut self.lists) {
            send(events, list).await?;
        }
        if self.follow == Follow::Routes {
            self.send_rules(events).await?;
            self.send_nexthops(events).await?;
            for family in Family::ALL {
                self.send_routes(family, events).await?;
            }
        }
        loop {
            let due = self.due.next();
            let datagram = tokio::select! {
                () = events.closed() => return Err(End::Closed),
                () = self.asked.notified() => {
                    self.due.routes4.ask(Instant::now(), ASKED_PAUSE);
                    self.due.routes6.ask(Instant::now(), ASKED_PAUSE);
                    continue;
                }
                datagram = self.routing.receive() => datagram,
                datagram = self.neighbours.receive() => datagram,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.reread(events).await?;
                    continue;
                }
            };
            let datagram = datagram.map_err(SubscribeError::Lost)?;
            for message in messages(datagram) {
                if self.replay.mark.is_some_and(|mark| message.answers(self.port, mark)) {
                    self.replay.end(&mut self.due);
                    continue;
                }
                let Some(change) = change(&message) else { continue };
                let event = match change {
                    Change::Event(event) => Some(event),
                    Change::LocalRoute(route) => self.local_routes.insert(route),
                    Change::LocalRouteGone(route) => self.local_routes.remove(&route),
                    Change::LocalRouteReplaced => {
                        self.due.locals.ask(Instant::now(), Duration::ZERO);
                        None
                    }
                    Change::Rules => {
                        self.due.rules.ask(Instant::now(), Duration::ZERO);
                        None
                    }
                };
                let Some(event) = event else { continue };
                self.replay.note(&event);
                self.due.note(&event, &self.egresses);
                match &event {
                    Event::Route { .. } | Event::RouteGone { .. }
                        if self.follow == Follow::NoRoutes => {}
                    _ => {
                        note_egresses(&event, &mut self.egresses);
                        send(events, event).await?;
                    }
                }
            }
        }
    }

    async fn reread(&mut self, events: &mpsc::Sender<Event>) -> Result<(), End> {
        let now = Instant::now();
        if self.due.locals.is_due(now) {
            let routes = lists::local_routes(&mut self.requests).await?;
            if routes != self.local_routes {
                self.local_routes = routes;
                send(events, self.local_routes.list()).await?;
            }
        }
        if self.due.rules.is_due(now) && self.follow == Follow::Routes {
            self.send_rules(events).await?;
        }
        if self.due.nexthops.is_due(now) && self.follow == Follow::Routes {
            self.send_nexthops(events).await?;
        }
        if self.due.routes4.is_due(now) && self.follow == Follow::Routes {
            self.send_routes(Family::Inet, events).await?;
        }
        if self.due.routes6.is_due(now) && self.follow == Follow::Routes {
            self.send_routes(Family::Inet6, events).await?;
        }
        Ok(())
    }

    async fn send_rules(&mut self, events: &mpsc::Sender<Event>) -> Result<(), End> {
        let rules = lists::rules(&mut self.requests).await?;
        send(events, Event::Rules(rules)).await
    }

    async fn send_nexthops(&mut self, events: &mpsc::Sender<Event>) -> Result<(), End> {
        let nexthops = lists::nexthops(&mut self.requests).await?;
        self.egresses.extend(nexthops.iter().filter_map(|it| match it.way {
            NexthopWay::Hop(hop) => Some(hop.ifindex),
            _ => None,
        }));
        send(events, Event::Nexthops(nexthops)).await
    }

    async fn send_routes(
        &mut self,
        family: Family,
        events: &mpsc::Sender<Event>,
    ) -> Result<(), End> {
        let begun = Instant::now();
        let mut dump = lists::routes(family);
        let mut is_complete = false;
        while !is_complete {
            let part = lists::routes_part(&mut self.requests, &mut dump).await?;
            is_complete = matches!(part, Part::End(_));
            let event = match part {
                Part::Begin => Event::RoutesBegin(family),
                Part::Some(routes) | Part::End(routes) => Event::Routes(routes),
            };
            note_egresses(&event, &mut self.egresses);
            send(events, event).await?;
        }
        self.replay.took = begun.elapsed();
        self.replay.mark = Some(self.routing.mark().map_err(SubscribeError::Socket)?);
        send(events, Event::RoutesEnd(family)).await
    }
}

impl Replay {
    fn note(&mut self, event: &Event) {
        let replaces =
            |prefix: &Prefix, position| prefix.is_ipv4() && position == Position::Replace;
        if let Event::Route { prefix, position, .. } = event {
            self.is_doubtful |= self.mark.is_some() && replaces(prefix, *position);
        }
    }

    fn end(&mut self, due: &mut Due) {
        self.mark = None;
        if std::mem::take(&mut self.is_doubtful) {
            // While routes change all the time, no more than a tenth of it goes into lists.
            due.routes4.ask(Instant::now(), ASKED_PAUSE.max(self.took * 10));
        }
    }
}

impl Due {
    fn next(&self) -> Option<Instant> {
        let all = [&self.locals, &self.routes4, &self.routes6, &self.nexthops, &self.rules];
        all.into_iter().filter_map(Reread::next).min()
    }

    /// What happens along with an event, and is not told.
    fn note(&mut self, event: &Event, egresses: &HashSet<u32>) {
        match event {
            Event::Link(link) => {
                self.nexthops.ask(Instant::now(), SILENT_NEXTHOPS);
                if !link.up {
                    self.note_removals(link.ifindex, egresses);
                }
            }
            Event::LinkGone { ifindex } => {
                self.nexthops.ask(Instant::now(), SILENT_NEXTHOPS);
                self.note_removals(*ifindex, egresses);
            }
            // Routes that prefer it as source go with it.
            Event::AddressGone(address) => self.note_removals(address.ifindex, egresses),
            _ => {}
        }
    }

    fn note_removals(&mut self, ifindex: u32, egresses: &HashSet<u32>) {
        let now = Instant::now();
        self.locals.ask(now, SILENT_REMOVAL);
        // A list of a million routes is not read for every container that ends.
        if egresses.contains(&ifindex) {
            self.routes4.ask(now, SILENT_REMOVAL);
        }
    }
}

fn note_egresses(event: &Event, egresses: &mut HashSet<u32>) {
    let mut note = |prefix: &Prefix, route: &KernelRoute| {
        if let (true, Next::Members(members)) = (prefix.is_ipv4(), &route.next) {
            egresses.extend(members.iter().map(|member| member.hop.ifindex));
        }
    };
    match event {
        Event::Routes(routes) => routes.iter().for_each(|(prefix, route)| note(prefix, route)),
        Event::Route { prefix, route, .. } => note(prefix, route),
        _ => {}
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

impl From<ListError> for End {
    fn from(error: ListError) -> Self {
        Self::Failed(error.into())
    }
}

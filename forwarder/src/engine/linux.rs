//! Routes on command that Linux is to have: they are written to its table, and come back by what
//! it tells everybody.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{Refusal, run::Engine};
use crate::{
    netlink::{LinuxWrite, RequestError, event::Event},
    paths::Member,
    prefix::Prefix,
    route::{
        Existing, NEXT_HOPS_MAX, PrefixMatch, Route, RouteEntry, Selector, protocol,
        protocol::FORWARDER,
    },
};

/// How long Linux may take to tell of a change that it has made.
const TOLD: Duration = Duration::from_secs(2);

impl Engine {
    pub(super) async fn add_to_linux(
        &mut self,
        route: &Route,
        existing: Existing,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<RouteEntry, Refusal> {
        let prefix = route.prefix;
        let mut members = self.routing.resolve(route).map_err(Refusal::new)?;
        if let Some(ours) = self.routing.first_entry(prefix) {
            match &ours.linux {
                None => {
                    return Err(Refusal::new(format!(
                        "{prefix} has a route in XDP alone, which would come before it ({}): \
                         delete that first, or say --xdp-only",
                        ours.route
                    )));
                }
                Some(_) if existing == Existing::Refuse => {
                    return Err(Refusal::new(format!(
                        "route {prefix} exists already ({}): use 'route replace', or delete it \
                         first",
                        ours.to_string().lines().next().unwrap_or_default()
                    )));
                }
                Some(linux) if linux.protocol != FORWARDER => {
                    return Err(not_ours(prefix, linux.protocol));
                }
                Some(_) if existing == Existing::Append => {
                    members = self.appended(prefix, members)?;
                }
                Some(_) => {}
            }
        }
        members.sort_unstable();
        let write =
            if existing == Existing::Refuse { LinuxWrite::Add } else { LinuxWrite::Replace };
        self.requests.write_route(write, prefix, &members).await.map_err(refused)?;
        let is_there = |engine: &Self| engine.routing.linux_members(prefix) == Some(&members[..]);
        self.until_told(events, is_there).await;
        self.confirm().await;
        self.routing.first_entry(prefix).ok_or_else(|| Refusal::new("the route is gone again"))
    }

    /// The members that a route has, and these.
    fn appended(&self, prefix: Prefix, new: Vec<Member>) -> Result<Vec<Member>, Refusal> {
        let mut all = self.routing.linux_members(prefix).unwrap_or_default().to_vec();
        for member in new {
            if all.iter().any(|it| it.hop == member.hop) {
                let twice = self.routing.describe(&[member]);
                return Err(Refusal::new(format!(
                    "File exists: {prefix} would lead {twice} twice"
                )));
            }
            all.push(member);
        }
        if all.len() > NEXT_HOPS_MAX {
            let message = format!("{prefix}: a route has at most {NEXT_HOPS_MAX} next hops");
            return Err(Refusal::new(message));
        }
        Ok(all)
    }

    /// A route of ours in Linux's table, or one of its next hops. Gives back the route as it was.
    pub(super) async fn delete_from_linux(
        &mut self,
        selector: &Selector,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<RouteEntry, Refusal> {
        let Some(PrefixMatch::Exact(prefix)) = selector.prefix else {
            return Err(Refusal::new("say which prefix: 'route del PREFIX'"));
        };
        let entry = self
            .routing
            .first_entry(prefix)
            .ok_or_else(|| Refusal::new(format!("no such route: {prefix}")))?;
        if let Some(linux) = entry.linux.as_ref().filter(|linux| linux.protocol != FORWARDER) {
            return Err(not_ours(prefix, linux.protocol));
        }
        if let Some(cpu) = selector.cpus.as_ref().and_then(|cpus| cpus.first()) {
            let message = format!("CPU {cpu} has no next hops of its own for {prefix}");
            return Err(Refusal::new(message));
        }
        let all = self.routing.linux_members(prefix).unwrap_or_default();
        let is_meant = |member: &&Member| {
            let dev = self.routing.name(member.hop.ifindex);
            selector.matches_next_hop(member.hop.via, Some(&dev))
        };
        let (gone, rest): (Vec<&Member>, Vec<&Member>) = all.iter().partition(is_meant);
        let rest: Vec<Member> = rest.into_iter().copied().collect();
        match (gone.len(), rest.len()) {
            (0, _) => {
                let message =
                    format!("no such route: {prefix} has another next hop ({})", entry.route);
                return Err(Refusal::new(message));
            }
            (1, _) | (_, 0) => {}
            _ => {
                return Err(Refusal::new(format!(
                    "{prefix}: several next hops match: say which one with 'via' and 'dev', or \
                     take the route away without either"
                )));
            }
        }
        let write = if rest.is_empty() { LinuxWrite::Delete } else { LinuxWrite::Replace };
        let named = if rest.is_empty() { &[][..] } else { &rest[..] };
        self.requests.write_route(write, prefix, named).await.map_err(refused)?;
        let wanted = (!rest.is_empty()).then_some(&rest[..]);
        let is_done = |engine: &Self| engine.routing.linux_members(prefix) == wanted;
        self.until_told(events, is_done).await;
        Ok(entry)
    }

    /// All of ours in Linux's table that match; gives back how many.
    pub(super) async fn flush_from_linux(
        &mut self,
        selector: &Selector,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<u64, Refusal> {
        let ours = self.routing.linux_prefixes(selector, FORWARDER);
        for prefix in &ours {
            self.requests.write_route(LinuxWrite::Delete, *prefix, &[]).await.map_err(refused)?;
            // Whoever listens must not be overrun by what comes of this.
            while let Ok(event) = events.try_recv() {
                self.routing.note(event);
            }
        }
        let is_done = |engine: &Self| {
            ours.iter().all(|prefix| engine.routing.linux_members(*prefix).is_none())
        };
        self.until_told(events, is_done).await;
        Ok(ours.len() as u64)
    }

    /// Takes in what Linux tells until it has told this, or time is up.
    async fn until_told(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        is_told: impl Fn(&Self) -> bool,
    ) {
        let deadline = Instant::now() + TOLD;
        while !is_told(self) {
            let Ok(Some(event)) = timeout_at(deadline, events.recv()).await else {
                tracing::warn!("Linux has not told of a route that it has taken");
                break;
            };
            self.apply_with(event, events).await;
        }
        if let Err(error) = self.routing.catch_up() {
            tracing::error!(%error, "cannot follow the kernel in everything");
        }
    }
}

fn not_ours(prefix: Prefix, owner: u8) -> Refusal {
    let owner = protocol::name(owner);
    Refusal::new(format!(
        "the route {prefix} is not forwarder's (proto {owner}): change it where it comes from, or \
         with `ip route`"
    ))
}

fn refused(error: RequestError) -> Refusal {
    Refusal::new(error.to_string())
}

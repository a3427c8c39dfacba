//! Compares what packets find in the maps with what Linux says, some prefixes at a time.

use std::{net::IpAddr, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::{AuditPage, Refusal, run::Engine};
use crate::{
    config::RouteSource,
    netlink::event::Event,
    prefix::Prefix,
    routing::{Difference, edges},
};

/// Prefixes of a page: some 2,000 questions, or 20 ms.
const PAGE_PREFIXES: usize = 512;
/// Prefixes that are looked at each second by ourselves.
const TICK_PREFIXES: usize = 64;
/// A difference that is still there after so long is one. Sooner, Linux may only not have told yet.
const SETTLED: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 5;

/// What the auditor has found since the start.
#[derive(Debug, Default)]
pub(super) struct Audited {
    pub(super) checked: u64,
    pub(super) differences: u64,
    /// Where it goes on.
    after: Option<Prefix>,
}

impl Engine {
    /// The prefixes behind one, or the first ones.
    pub(super) async fn audit(
        &mut self,
        after: Option<Prefix>,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<AuditPage, Refusal> {
        if self.facts.routes != RouteSource::Kernel {
            return Err(Refusal::new(
                "Linux's routes are not followed (`run --routes static`), so there is nothing to compare",
            ));
        }
        self.audit_some(after, PAGE_PREFIXES, events).await
    }

    /// Goes on by itself, a little each second; what is wrong is logged, and read again.
    pub(super) async fn audit_in_background(&mut self, events: &mut mpsc::Receiver<Event>) {
        if self.facts.routes != RouteSource::Kernel {
            return;
        }
        match self.audit_some(self.audited.after, TICK_PREFIXES, events).await {
            Ok(page) => {
                self.audited.after = page.more_after;
                for Difference { destination, what } in &page.differences {
                    tracing::warn!(%destination, "not as Linux would do it: {what}");
                }
                if !page.differences.is_empty() {
                    self.facts.reread.notify_one();
                }
            }
            Err(error) => tracing::warn!(%error, "cannot compare routes with Linux's"),
        }
    }

    async fn audit_some(
        &mut self,
        after: Option<Prefix>,
        count: usize,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<AuditPage, Refusal> {
        let prefixes: Vec<Prefix> = self.routing.audited_after(after).take(count).collect();
        let mut page = AuditPage::default();
        if prefixes.len() == count {
            page.more_after = prefixes.last().copied();
        }
        let mut suspects: Vec<IpAddr> = prefixes.into_iter().flat_map(edges).collect();
        page.checked = suspects.len() as u64;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 && !suspects.is_empty() {
                self.listen_for(SETTLED, events).await;
            }
            page.differences.clear();
            for destination in suspects {
                let linux = self.requests.lookup(destination).await;
                let linux = linux.map_err(|error| Refusal::new(error.to_string()))?;
                page.differences.extend(self.routing.difference(destination, &linux));
            }
            suspects = page.differences.iter().map(|difference| difference.destination).collect();
        }
        self.audited.checked += page.checked;
        self.audited.differences += page.differences.len() as u64;
        Ok(page)
    }

    /// Takes in what comes in this time, and no longer, however much comes.
    async fn listen_for(&mut self, time: Duration, events: &mut mpsc::Receiver<Event>) {
        let deadline = Instant::now() + time;
        while let Ok(Some(event)) = timeout_at(deadline, events.recv()).await {
            self.apply_with(event, events).await;
        }
        self.renew_lease();
    }
}

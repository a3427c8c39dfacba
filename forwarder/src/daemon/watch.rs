//! Follows what XDP would bypass while the engine runs.

use std::{io, path::Path, time::Duration};

use tokio::{
    sync::watch::Sender,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};

use crate::{bypass::Finding, netlink::RulesWatch, preflight::bypass::Scanner};

/// How often is looked for what no notification tells of (iptables-legacy, BPF), or what got lost: so
/// that nothing is bypassed for longer than a second.
const TICK: Duration = Duration::from_millis(500);
/// Notifications that come together are answered by one scan.
const TOGETHER: Duration = Duration::from_millis(50);

/// Looks whenever something may have changed, until nobody listens any more. In the network
/// namespace of the calling thread; so must the sockets of `scanner` be.
pub(super) async fn follow(mut scanner: Scanner, ports: Vec<u32>, findings: Sender<Vec<Finding>>) {
    let mut watch = open();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = findings.closed() => return,
            _ = tick.tick() => watch = watch.or_else(open),
            changed = changed(&mut watch) => {
                if let Err(error) = changed {
                    tracing::warn!(%error, "the kernel does not tell of changed rules: looking each second");
                    watch = None;
                }
                scanner.forget();
            }
        }
        let found = scanner.scan(&ports).await;
        findings.send_if_modified(|known| {
            let is_new = *known != found;
            *known = found;
            is_new
        });
    }
}

fn open() -> Option<RulesWatch> {
    let opened = RulesWatch::open();
    let told = opened.inspect_err(|error| tracing::debug!(%error, "cannot watch rules"));
    told.ok()
}

/// Returns a moment after the first change.
async fn changed(watch: &mut Option<RulesWatch>) -> io::Result<()> {
    let Some(watch) = watch else { return std::future::pending().await };
    watch.changed().await?;
    let until = Instant::now() + TOGETHER;
    while let Ok(more) = timeout_at(until, watch.changed()).await {
        more?;
    }
    Ok(())
}

/// For what is read from `/proc`.
pub(super) fn scanner() -> io::Result<Scanner> {
    Scanner::open(Path::new("/proc").into())
}

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
            first = changed(&mut watch) => {
                let all = match first {
                    Ok(()) => settle(&mut watch).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = all {
                    tracing::warn!(%error, "the kernel does not tell of changed rules for now");
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

/// Returns at the first change; nothing is lost when this future is dropped.
async fn changed(watch: &mut Option<RulesWatch>) -> io::Result<()> {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits for those that come with it.
async fn settle(watch: &mut Option<RulesWatch>) -> io::Result<()> {
    let until = Instant::now() + TOGETHER;
    while let Ok(more) = timeout_at(until, changed(watch)).await {
        more?;
    }
    Ok(())
}

/// For what is read from `/proc`.
pub(super) fn scanner() -> io::Result<Scanner> {
    Scanner::open(Path::new("/proc").into())
}

//! Prints what the programs log: a build with feature `trace` alone.

use std::time::Duration;

use aya::Ebpf;
use aya_log::EbpfLogger;
use tokio::time::{MissedTickBehavior, interval};

/// How often the ring is emptied. Waiting on its descriptor would take unsafe code, for lines that
/// are read by eye.
const PERIOD: Duration = Duration::from_millis(50);

/// Follows the programs' log for as long as the runtime lives.
pub(super) fn follow(ebpf: &mut Ebpf) {
    let mut logger = match EbpfLogger::init(ebpf) {
        Ok(logger) => logger,
        Err(error) => {
            tracing::warn!("cannot read what the programs log: {error}");
            return;
        }
    };
    tokio::spawn(async move {
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            logger.flush();
        }
    });
}

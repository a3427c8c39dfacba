//! Prints what the programs log: a build with feature `trace` alone.

use aya::Ebpf;
use aya_log::EbpfLogger;
use tokio::io::{Interest, unix::AsyncFd};

/// Follows the programs' log for as long as the runtime lives.
pub(super) fn follow(ebpf: &mut Ebpf) {
    let logger = EbpfLogger::init(ebpf).map_err(|error| error.to_string());
    let logger = logger.and_then(|logger| {
        AsyncFd::with_interest(logger, Interest::READABLE).map_err(|error| error.to_string())
    });
    let mut logger = match logger {
        Ok(logger) => logger,
        Err(error) => {
            tracing::warn!("cannot read what the programs log: {error}");
            return;
        }
    };
    tokio::spawn(async move {
        while let Ok(mut ready) = logger.readable_mut().await {
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
    });
}

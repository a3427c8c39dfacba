//! An interface's own counters, beside ours.

use serde::{Deserialize, Serialize};

/// Since the interface exists, whoever sent and received (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicCounters {
    pub rx_missed: u64,
    pub rx_fifo: u64,
    pub rx_over: u64,
    pub rx_dropped: u64,
    pub rx_errors: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
}

impl NicCounters {
    /// Names of [`Self::to_array`]'s counters, and what each means.
    pub const MEANINGS: [(&str, &str); 7] = [
        (
            "rx_missed",
            "the NIC had no buffer for them, and XDP never saw them: more queues, or a longer ring (`ethtool -G`)",
        ),
        ("rx_fifo", "the NIC's own memory was full before the host could take them"),
        ("rx_over", "longer than the receive buffer, or a ring that was full"),
        (
            "rx_dropped",
            "dropped on arrival by the driver or the kernel; some drivers count failed redirects here too",
        ),
        ("rx_errors", "damaged on the wire: cable, transceiver, duplex"),
        ("tx_dropped", "not sent by the driver; some count what XDP could not send here too"),
        ("tx_errors", "the NIC could not send them"),
    ];

    pub const fn to_array(self) -> [u64; 7] {
        let Self { rx_missed, rx_fifo, rx_over, rx_dropped, rx_errors, tx_dropped, tx_errors } =
            self;
        [rx_missed, rx_fifo, rx_over, rx_dropped, rx_errors, tx_dropped, tx_errors]
    }

    pub const fn from_array(counters: [u64; 7]) -> Self {
        let [rx_missed, rx_fifo, rx_over, rx_dropped, rx_errors, tx_dropped, tx_errors] = counters;
        Self { rx_missed, rx_fifo, rx_over, rx_dropped, rx_errors, tx_dropped, tx_errors }
    }
}

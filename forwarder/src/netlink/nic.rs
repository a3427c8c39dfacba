//! An interface's own counters, as its driver and the kernel keep them (`struct rtnl_link_stats64`).

use super::{
    requests::{RequestError, Requests},
    wire::{Attributes, Request},
};
use crate::snapshot::NicCounters;

// `linux/if_link.h`, `linux/rtnetlink.h`
const RTM_GETSTATS: u16 = 94;
const IFLA_STATS_LINK_64: u16 = 1;
/// `struct if_stats_msg`
const HEADER_LEN: usize = 12;

impl Requests {
    /// `None` where the kernel does not tell.
    pub async fn nic_counters(&self, ifindex: u32) -> Result<Option<NicCounters>, RequestError> {
        let filter = 1_u32 << (IFLA_STATS_LINK_64 - 1);
        let mut header = [0; HEADER_LEN];
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        header[8..12].copy_from_slice(&filter.to_ne_bytes());
        let request = Request::new(RTM_GETSTATS, 0, &header);
        let failed = |source| RequestError::Stats { ifindex, source };
        let answers =
            self.socket().await.request(request, |message| nic_counters(message.body)).await;
        Ok(answers.map_err(failed)?.into_iter().next())
    }
}

/// The body of an `RTM_NEWSTATS`.
fn nic_counters(body: &[u8]) -> Option<NicCounters> {
    let stats = Attributes::after(HEADER_LEN, body).get(IFLA_STATS_LINK_64)?;
    // The kernel appends to the structure: what is read is there since 2.6.35.
    let counter = |index: usize| {
        let bytes = stats.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(NicCounters {
        rx_errors: counter(4)?,
        tx_errors: counter(5)?,
        rx_dropped: counter(6)?,
        tx_dropped: counter(7)?,
        rx_over: counter(11)?,
        rx_fifo: counter(14)?,
        rx_missed: counter(15)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(counters: &[u64]) -> Vec<u8> {
        let mut body = vec![0; HEADER_LEN];
        let bytes: Vec<u8> = counters.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let length = u16::try_from(bytes.len() + 4).unwrap();
        body.extend(length.to_ne_bytes());
        body.extend(IFLA_STATS_LINK_64.to_ne_bytes());
        body.extend(bytes);
        body
    }

    #[test]
    fn each_counter_has_its_place() {
        let counters: Vec<u64> = (100..124).collect();
        let expected = NicCounters {
            rx_errors: 104,
            tx_errors: 105,
            rx_dropped: 106,
            tx_dropped: 107,
            rx_over: 111,
            rx_fifo: 114,
            rx_missed: 115,
        };
        assert_eq!(nic_counters(&message(&counters)), Some(expected));
        // A kernel with more, and one with too few.
        let more: Vec<u64> = (100..130).collect();
        assert_eq!(nic_counters(&message(&more)), Some(expected));
        assert_eq!(nic_counters(&message(&counters[..15])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = nic_counters(&body);
        }
    }
}

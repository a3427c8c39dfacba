//! Per-CPU counters: nothing shared is written.

use aya_ebpf::maps::PerCpuArray;
use forwarder_common::{
    abi::{Counter, Interface, InterfaceCounters, RouteId},
    verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED},
};

use crate::maps::{ROUTE_COUNTERS, counts_routes};

/// The account of one frame, opened at its arrival and closed by exactly one outcome.
pub(crate) struct Account {
    counters: Option<*mut InterfaceCounters>,
    bytes: u64,
}

impl Account {
    /// Counts the frame as received. Frames of an interface that is not described go to slot 0.
    #[inline(always)]
    pub(crate) fn open(
        counters: &PerCpuArray<InterfaceCounters>,
        interface: Option<&Interface>,
        len: usize,
    ) -> Self {
        let slot = interface.map_or(0, |interface| interface.slot);
        let account = Self { counters: counters.get_ptr_mut(slot), bytes: len as u64 };
        account.count(SLOT_RX);
        account
    }

    #[inline(always)]
    pub(crate) fn redirected(self, route: RouteId) {
        self.count(SLOT_REDIRECTED);
        if counts_routes()
            && let Some(counter) = ROUTE_COUNTERS.get_ptr_mut(route)
        {
            // SAFETY: the element is this CPU's own, and one program runs here at a time.
            add(unsafe { &mut *counter }, self.bytes);
        }
    }

    #[inline(always)]
    pub(crate) fn steered(self) {
        self.count(SLOT_STEERED);
    }

    #[inline(always)]
    pub(crate) fn passed(self, reason: Reason) {
        self.count(reason.slot());
    }

    #[inline(always)]
    fn count(&self, slot: u32) {
        let Some(counters) = self.counters else { return };
        // SAFETY: the element is this CPU's own, and one program runs here at a time.
        let InterfaceCounters(counters) = unsafe { &mut *counters };
        if let Some(counter) = counters.get_mut(slot as usize) {
            add(counter, self.bytes);
        }
    }
}

#[inline(always)]
fn add(counter: &mut Counter, bytes: u64) {
    counter.packets = counter.packets.wrapping_add(1);
    counter.bytes = counter.bytes.wrapping_add(bytes);
}

//! The interfaces' own counters of what they lost, as Linux has them.

use super::table::aligned;
use crate::snapshot::{NicCounters, Snapshot};

/// Empty where they lost nothing, or nobody tells.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let heading = ["interface", "its own", "counter", "since it exists; not all of it is ours"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for interface in &snapshot.interfaces {
        let counters = interface.nic.unwrap_or_default().to_array();
        let some =
            counters.into_iter().zip(NicCounters::MEANINGS).filter(|(frames, _)| *frames > 0);
        rows.extend(some.map(|(frames, (name, meaning))| {
            [&interface.name, &frames.to_string(), name, meaning].map(str::to_owned).to_vec()
        }));
    }
    if rows.len() == 1 { String::new() } else { format!("\n{}", aligned(&rows, &[0, 2, 3])) }
}

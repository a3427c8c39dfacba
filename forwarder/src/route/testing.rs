//! What tests of several modules show or send.

use super::NeighbourEntry;

/// A next hop whose address is known.
pub(crate) fn neighbour() -> NeighbourEntry {
    NeighbourEntry {
        address: "198.18.1.2".parse().unwrap(),
        dev: "eth1".to_owned(),
        mac: Some("02:00:00:00:00:01".to_owned()),
        nud: "REACHABLE".to_owned(),
        routes: 2,
    }
}

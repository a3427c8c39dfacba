//! What makes this machine's flow hashes differ from those of others: two routers in a row that hash
//! alike would each send all that comes by one of their next hops to one of the next.

use std::{fs, path::Path};

/// Where a machine says who it is, the most lasting first.
const IDS: [&str; 2] = ["etc/machine-id", "proc/sys/kernel/random/boot_id"];

/// What tells this machine from others; empty where nothing does.
pub(super) fn machine(root: &Path) -> String {
    let read = |path| fs::read_to_string(root.join(path)).ok();
    let ids = IDS.into_iter().filter_map(read).map(|id| id.trim().to_owned());
    ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default()
}

/// The seed of a forwarder of this name on this machine: the same after each start. The machine's
/// id is not to be told to others, and does not show in it.
pub(super) fn of(machine: &str, name: &str) -> u64 {
    // FNV-1a, then the finalizer of MurmurHash3: a bit of either changes half of the seed's.
    let bytes = machine.bytes().chain([0]).chain(name.bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_lasts_and_differs_by_machine_and_name() {
        // A change would move every flow at an upgrade.
        assert_eq!(of("", ""), 13_331_581_593_930_102_267);
        let seeds = [("a", "b"), ("a", "c"), ("b", "b"), ("ab", ""), ("", "ab"), ("", "")];
        let mut seeds = seeds.map(|(machine, name)| of(machine, name));
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|pair| (pair[0] ^ pair[1]).count_ones() > 10), "{seeds:x?}");
    }

    #[test]
    fn a_machine_without_an_id_has_that_of_its_boot() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(machine(root.path()), "");
        write(IDS[1], "boot\n");
        write(IDS[0], "\n");
        assert_eq!(machine(root.path()), "boot");
        write(IDS[0], "machine\n");
        assert_eq!(machine(root.path()), "machine");
    }
}

//! Long proofs about the FIB in the kernel, for `cargo xtask soak`: summary in docs/soak.md.

use forwarder::prefix::Family;
use forwarder_tests::{
    agreement::{Agreement, Sizes},
    churn::{Set, churn, membarrier_grace},
    require, skip,
    tables::{synthetic, trace},
};

const LOOKUPS: u64 = 100_000_000;
const FAMILIES: [Family; 2] = [Family::Inet, Family::Inet6];

#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_the_loaded_program_agrees_for_full_tables() {
    require!(skip::lab());
    for family in FAMILIES {
        let routes = full(family);
        Agreement::check(family, &Sizes { routes, addresses: trace::LEN, updates: 10_000 });
    }
}

#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_no_read_is_torn_in_a_hot_set() {
    require!(skip::lab());
    require!(skip::cpus(2));
    for family in FAMILIES {
        nothing_is_wrong(family, Set::Hot, LOOKUPS, 100_000);
        // What the control below does, but for the grace periods, which now keep the writer.
        nothing_is_wrong(family, Set::HotAndTight, LOOKUPS, 500);
    }
}

#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_no_read_is_torn_in_full_tables() {
    require!(skip::lab());
    require!(skip::cpus(2));
    for family in FAMILIES {
        nothing_is_wrong(family, Set::Table(full(family)), LOOKUPS, 100_000);
    }
}

/// The control: if this finds nothing, the two above prove nothing.
#[test]
#[ignore = "long: part of `cargo xtask soak`"]
fn soak_without_grace_periods_reads_are_torn() {
    require!(skip::lab());
    require!(skip::cpus(2));
    for family in FAMILIES {
        let outcome = churn(family, Set::HotAndTight, || true, 20 * LOOKUPS, true);
        println!("{family}, without grace periods: {outcome:?}");
        assert!(outcome.wrong > 0, "{family}: this test cannot see a torn read");
    }
}

fn nothing_is_wrong(family: Family, set: Set, lookups: u64, updates: u64) {
    let outcome = churn(family, set, membarrier_grace, lookups, false);
    println!("{family}, {set:?}: {outcome:?}");
    assert_eq!(outcome.wrong, 0, "{family}, {set:?}: {outcome:?}");
    assert!(outcome.updates > updates, "{family}, {set:?}: only {} updates", outcome.updates);
}

fn full(family: Family) -> usize {
    match family {
        Family::Inet => synthetic::FULL4,
        Family::Inet6 => synthetic::FULL6,
    }
}

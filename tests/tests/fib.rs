//! The loaded program's lookups against an oracle that knows nothing of the FIB.

use forwarder::prefix::Family;
use forwarder_tests::{
    agreement::{Agreement, Sizes},
    require, skip,
};

#[test]
fn the_loaded_program_finds_what_the_oracle_finds() {
    require!(skip::lab());
    for (family, routes) in [(Family::Inet, 20_000), (Family::Inet6, 10_000)] {
        Agreement::check(family, &Sizes { routes, addresses: 1 << 16, updates: 2000 });
    }
}

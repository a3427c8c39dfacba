//! Random tables, and what happens to them.

use std::cell::Cell;

use super::*;

thread_local! {
    // Their roots are large: what is empty again serves the next case.
    static LARGE: Cell<Option<Fib<Plain>>> = const { Cell::new(None) };
    static SMALL: Cell<Option<Fib<Plain>>> = const { Cell::new(None) };
    static REPLACED: Cell<Option<Fib<Plain>>> = const { Cell::new(None) };
}

/// Prefixes close to each other, so that they nest and touch, at every length.
fn any_prefix() -> impl Strategy<Value = Prefix> {
    let near = prop::sample::select(vec![
        0xc612_0000_u32,
        0xc612_0200,
        0xc613_ffff,
        0x0a00_0000,
        0x0a00_ffff,
        0xffff_ffff,
        0,
    ]);
    let four = (near, any::<u32>(), 0..=32_u8).prop_map(|(near, noise, len)| {
        let address = Ipv4Addr::from(near ^ (noise & 0x0003_0183));
        Prefix::new(IpNet::new(address.into(), len).unwrap().trunc()).unwrap()
    });
    let near = prop::sample::select(vec![
        "2001:db8::",
        "2001:db8:ffff:ffff::",
        "2a00:1:2:3::",
        "3fff:ffff:ffff::",
        "fd00::",
        "2002:c612:1::",
        "fe80::",
        "::",
        "4000::",
        "ffff:ffff:ffff::",
        "1fff:ffff::",
    ]);
    let lens = prop_oneof![
        // Those that are shorter change a million slots each.
        100 => 14..=128_u8,
        100 => prop::sample::select(vec![16, 17, 23, 24, 25, 32, 48, 64, 127, 128]),
        1 => 0..=5_u8,
    ];
    let six = (near, any::<u128>(), lens).prop_map(|(near, noise, len)| {
        let near: Ipv6Addr = near.parse().unwrap();
        let address = Ipv6Addr::from(u128::from(near) ^ (noise & (0x103_0081_0003 << 64 | 0x8001)));
        Prefix::new(IpNet::new(address.into(), len).unwrap().trunc()).unwrap()
    });
    prop_oneof![four, six]
}

/// Few, so that neighbours are equal; some need more than a byte.
fn any_id() -> impl Strategy<Value = RouteId> {
    prop_oneof![4 => 3..9_u32, 1 => 254..258_u32]
}

fn any_batch() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((any_prefix(), prop::option::weighted(0.7, any_id())), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_do_what_they_say_and_a_full_delete_returns_every_block(
        batches in prop::collection::vec(any_batch(), 1..12),
    ) {
        let mut fib = LARGE.take().unwrap_or_else(|| fib(1 << 16));
        let mut oracle = Oracle::default();
        for batch in batches {
            fib.apply(&batch, &mut no_grace).unwrap();
            oracle.apply(&batch);
            let changed = batch.iter().flat_map(|(prefix, _)| oracle::edges_of(*prefix));
            oracle.check(&fib, changed);
            prop_assert_eq!(
                fib.count(Family::Inet) + fib.count(Family::Inet6), oracle.len() as u64
            );
        }
        oracle.check(&fib, oracle.edges());
        let mut prefixes = fib.prefixes();
        prefixes.sort_unstable();
        prop_assert!(prefixes.iter().all(|prefix| fib.route(*prefix).is_some()));
        prop_assert_eq!(prefixes.len(), oracle.len());
        oracle.empty(&mut fib);
        LARGE.set(Some(fib));
    }

    #[test]
    fn batches_at_one_instant_do_what_they_say(
        batches in prop::collection::vec(any_batch(), 1..4),
    ) {
        let mut fib = LARGE.take().unwrap_or_else(|| fib(1 << 16));
        let mut oracle = Oracle::default();
        for batch in batches {
            fib.apply_at_once(&batch, &mut at_once).unwrap();
            oracle.apply(&batch);
            oracle.check(&fib, oracle.edges());
            let changed = batch.iter().flat_map(|(prefix, _)| oracle::edges_of(*prefix));
            oracle.check(&fib, changed);
        }
        oracle.empty(&mut fib);
        LARGE.set(Some(fib));
    }

    #[test]
    fn a_small_memory_refuses_or_does_it_whole(
        batches in prop::collection::vec(any_batch(), 1..40),
    ) {
        let mut fib = SMALL.take().unwrap_or_else(|| fib(2000));
        let mut oracle = Oracle::default();
        for batch in batches {
            if fib.apply(&batch, &mut at_once).is_ok() {
                oracle.apply(&batch);
            }
            let touched = batch.iter().flat_map(|(prefix, _)| oracle::edges_of(*prefix));
            oracle.check(&fib, touched);
        }
        oracle.check(&fib, oracle.edges());
        oracle.empty(&mut fib);
        SMALL.set(Some(fib));
    }

    #[test]
    fn one_by_one_and_all_at_once_are_the_same(batch in prop::collection::vec(
        (any_prefix(), any_id()), 1..100,
    )) {
        let mut one_by_one = LARGE.take().unwrap_or_else(|| fib(1 << 16));
        let mut at_once = REPLACED.take().unwrap_or_else(|| fib(1 << 16));
        let mut oracle = Oracle::default();
        for (prefix, id) in &batch {
            one_by_one.apply(&[(*prefix, Some(*id))], &mut no_grace).unwrap();
            oracle.apply(&[(*prefix, Some(*id))]);
        }
        at_once.replace(batch, &mut || true).unwrap();
        oracle.check(&one_by_one, oracle.edges());
        oracle.check(&at_once, oracle.edges());
        one_by_one.pool.release();
        prop_assert_eq!(one_by_one.usage(), at_once.usage(), "the same nodes, however made");
        oracle.empty(&mut one_by_one);
        LARGE.set(Some(one_by_one));
        REPLACED.set(Some(at_once));
    }
}

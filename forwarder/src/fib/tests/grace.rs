//! A reader that stalls inside a node, while others change the table under it.

use std::cell::RefCell;

use forwarder_common::fib::{Memory, lookup4, lookup6};

use super::{reader::Words, *};

/// Runs `meanwhile` once, after a reader has found its first node and before it looks into it.
struct Stalled<'a, F> {
    words: &'a [AtomicU32],
    meanwhile: RefCell<Option<F>>,
}

impl<'a, F: FnOnce()> Memory for Stalled<'a, F> {
    type Node = Words<'a>;

    fn word(&self, at: u32) -> u32 {
        Words(self.words).word(at)
    }

    fn node(&self, reference: u32) -> Self::Node {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        Words(self.words).node(reference)
    }
}

/// What a stalled reader of 198.18.2.1 and of 2001:db8:0:2::1 finds, while their node is given up
/// and as much is written as there is room for.
fn stalled(mut grace: impl FnMut() -> bool) -> [RouteId; 2] {
    let mut found = [0; 2];
    for (at, own, other, other_len) in [
        (0, "198.18.2.0/24", [10_u8, 0, 0, 0, 0, 0, 0, 0], 24),
        (1, "2001:db8:0:2::/64", [0x20, 2, 0, 0, 0, 0, 0, 0], 64),
    ] {
        let mut fib = fib(900);
        fib.apply(&[(prefix(own), Some(7))], &mut no_grace).unwrap();
        let memory = fib.memory.clone();
        let words = memory.as_ref();
        let meanwhile = || {
            fib.apply(&[(prefix(own), None)], &mut grace).unwrap();
            for i in 0..=u8::MAX {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(&other);
                octets[1] = octets[1].wrapping_add(i);
                let address = if at == 0 {
                    IpAddr::from([other[0], i, 0, 0])
                } else {
                    octets[7] = i;
                    IpAddr::from(octets)
                };
                let net = IpNet::new(address, other_len).unwrap().trunc();
                let change = [(Prefix::new(net).unwrap(), Some(9))];
                if fib.apply(&change, &mut grace).is_err() {
                    break;
                }
            }
        };
        let stalled = Stalled { words, meanwhile: RefCell::new(Some(meanwhile)) };
        found[at] = match own.split('/').next().unwrap().parse().unwrap() {
            IpAddr::V4(address) => lookup4(&stalled, address.octets()),
            IpAddr::V6(address) => lookup6(&stalled, address.octets()),
        };
        assert!(stalled.meanwhile.take().is_none(), "the reader has found no node");
    }
    found
}

#[test]
fn a_reader_that_stalls_finds_what_was_true() {
    // Its grace period never ends while it stands there.
    assert_eq!(stalled(|| false), [7, 7]);
}

#[test]
fn without_grace_periods_it_would_find_something_else() {
    let found = stalled(|| true);
    assert!(found.iter().all(|route| *route != 7), "{found:?}: this test cannot see anything");
}

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

/// What stalled readers of 198.18.2.1 and of 2001:db8:0:2::1 find, while their node is given up and
/// nodes of the same form, for other prefixes, fill all that there is room for.
fn stalled(mut grace: impl FnMut() -> bool) -> [RouteId; 2] {
    let others4: Vec<String> = (0..=255).map(|i| format!("10.{i}.2.0/24")).collect();
    let others6: Vec<String> = (0..=255).map(|i| format!("2002:{i:x}b8:0:2::/64")).collect();
    [("198.18.2.0/24", others4), ("2001:db8:0:2::/64", others6)].map(|(own, others)| {
        let mut fib = fib(300);
        fib.apply(&[(prefix(own), Some(7))], &mut no_grace).unwrap();
        let memory = fib.memory.clone();
        let meanwhile = || {
            fib.apply(&[(prefix(own), None)], &mut grace).unwrap();
            let mut others = others.iter().map(|other| (prefix(other), Some(9)));
            while others.next().is_some_and(|other| fib.apply(&[other], &mut grace).is_ok()) {}
            assert!(others.next().is_some(), "the memory is not full");
        };
        let stalled = Stalled { words: memory.as_ref(), meanwhile: RefCell::new(Some(meanwhile)) };
        let found = match prefix(own).address() {
            IpAddr::V4(address) => lookup4(&stalled, address.octets()),
            IpAddr::V6(address) => lookup6(&stalled, address.octets()),
        };
        assert!(stalled.meanwhile.take().is_none(), "the reader has found no node");
        found
    })
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

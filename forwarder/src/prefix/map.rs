//! Values by prefix, and what covers what.

use std::{
    collections::{BTreeMap, btree_map},
    net::{IpAddr, Ipv4Addr},
    ops::RangeFrom,
};

use super::{Family, Prefix};

/// In the order of prefixes, IPv4 first: those below a prefix lie side by side behind it.
///
/// What covers a prefix is looked for at those lengths alone that are there: real tables have few.
#[derive(Debug)]
pub struct PrefixMap<V> {
    /// Apart, since its keys are half as long, and compared at once.
    values4: BTreeMap<Key4, V>,
    values6: BTreeMap<Prefix, V>,
    lens: [Lens; 2],
}

/// An IPv4 prefix, in the order of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key4(u64);

impl Key4 {
    fn of(prefix: Prefix) -> Option<Self> {
        let IpAddr::V4(address) = prefix.address() else { return None };
        Some(Self(u64::from(address.to_bits()) << 8 | u64::from(prefix.len())))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two parts of a key")]
    fn prefix(self) -> Prefix {
        let address = Ipv4Addr::from_bits((self.0 >> 8) as u32);
        Prefix::host(address.into()).shortened(self.0 as u8)
    }
}

/// The lengths that are there, ascending, and how often.
type Lens = BTreeMap<u8, usize>;

impl<V> Default for PrefixMap<V> {
    fn default() -> Self {
        Self { values4: BTreeMap::new(), values6: BTreeMap::new(), lens: Default::default() }
    }
}

impl<V> PrefixMap<V> {
    /// Gives back what was there before.
    pub fn insert(&mut self, prefix: Prefix, value: V) -> Option<V> {
        let before = match Key4::of(prefix) {
            Some(key) => self.values4.insert(key, value),
            None => self.values6.insert(prefix, value),
        };
        if before.is_none() {
            *self.lens[index(prefix)].entry(prefix.len()).or_default() += 1;
        }
        before
    }

    pub fn remove(&mut self, prefix: Prefix) -> Option<V> {
        let value = match Key4::of(prefix) {
            Some(key) => self.values4.remove(&key),
            None => self.values6.remove(&prefix),
        }?;
        if let btree_map::Entry::Occupied(mut count) = self.lens[index(prefix)].entry(prefix.len())
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(value)
    }

    pub fn get(&self, prefix: Prefix) -> Option<&V> {
        match Key4::of(prefix) {
            Some(key) => self.values4.get(&key),
            None => self.values6.get(&prefix),
        }
    }

    pub fn get_mut(&mut self, prefix: Prefix) -> Option<&mut V> {
        match Key4::of(prefix) {
            Some(key) => self.values4.get_mut(&key),
            None => self.values6.get_mut(&prefix),
        }
    }

    pub fn contains(&self, prefix: Prefix) -> bool {
        self.get(prefix).is_some()
    }

    /// Prefixes of a family.
    pub fn count(&self, family: Family) -> u64 {
        let lens = &self.lens[usize::from(family == Family::Inet6)];
        lens.values().map(|count| *count as u64).sum()
    }

    pub fn keys(&self) -> impl Iterator<Item = Prefix> {
        self.values4.keys().map(|key| key.prefix()).chain(self.values6.keys().copied())
    }

    /// From this one on, whether it is there or not.
    pub fn range(&self, from: RangeFrom<Prefix>) -> impl Iterator<Item = (Prefix, &V)> {
        // Behind the last of IPv4 comes IPv6.
        let first4 = Key4::of(from.start).unwrap_or(Key4(u64::MAX));
        let four = self.values4.range(first4..).map(|(key, value)| (key.prefix(), value));
        let six = self.values6.range(from).map(|(prefix, value)| (*prefix, value));
        four.chain(six)
    }

    /// What covers this prefix, itself too, the longest first.
    pub fn covering(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, &V)> {
        let lens = self.lens[index(prefix)].range(..=prefix.len()).rev();
        lens.filter_map(move |(len, _)| {
            let above = prefix.shortened(*len);
            Some((above, self.get(above)?))
        })
    }

    /// The longest prefix that holds this address.
    pub fn longest_match(&self, address: IpAddr) -> Option<(Prefix, &V)> {
        self.covering(Prefix::host(address)).next()
    }
}

impl<V> FromIterator<(Prefix, V)> for PrefixMap<V> {
    fn from_iter<I: IntoIterator<Item = (Prefix, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (prefix, value) in pairs {
            map.insert(prefix, value);
        }
        map
    }
}

fn index(prefix: Prefix) -> usize {
    usize::from(prefix.family() == Family::Inet6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(prefixes: &[&str]) -> PrefixMap<usize> {
        prefixes.iter().zip(0..).map(|(text, at)| (text.parse().unwrap(), at)).collect()
    }

    #[test]
    fn what_covers_a_prefix_comes_longest_first() {
        let mut map =
            map(&["0.0.0.0/0", "198.18.0.0/15", "198.18.2.0/24", "198.18.2.0/25", "::/0"]);
        let covering = |map: &PrefixMap<usize>, text: &str| -> Vec<usize> {
            map.covering(text.parse().unwrap()).map(|(_, at)| *at).collect()
        };
        assert_eq!(covering(&map, "198.18.2.1/32"), [3, 2, 1, 0]);
        assert_eq!(covering(&map, "198.18.2.0/24"), [2, 1, 0]);
        assert_eq!(covering(&map, "198.18.2.128/25"), [2, 1, 0]);
        assert_eq!(covering(&map, "2001:db8::/32"), [4]);
        assert_eq!(map.remove("198.18.2.0/24".parse().unwrap()), Some(2));
        assert_eq!(map.remove("198.18.2.0/24".parse().unwrap()), None);
        assert_eq!(covering(&map, "198.18.2.200/32"), [1, 0]);
        map.insert("0.0.0.0/0".parse().unwrap(), 9);
        assert_eq!(covering(&map, "198.20.0.0/16"), [9]);
        map.remove("0.0.0.0/0".parse().unwrap());
        assert_eq!(map.longest_match("198.20.0.1".parse().unwrap()), None);
    }
}

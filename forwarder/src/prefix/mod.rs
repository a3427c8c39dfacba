//! Prefixes whose host bits are zero, and address families.

mod map;

use std::{cmp::Ordering, fmt, net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::map::PrefixMap;

/// An IPv4 or IPv6 prefix without host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(IpNet);

/// IPv4 first, then by address, and at one address the shorter first.
impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (IpNet::V4(a), IpNet::V4(b)) => {
                (a.addr().to_bits(), a.prefix_len()).cmp(&(b.addr().to_bits(), b.prefix_len()))
            }
            _ => self.sort_key().cmp(&other.sort_key()),
        }
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    #[error(
        "'{0}' is not a prefix: write ADDRESS/LENGTH, for example 198.18.2.0/24 or 2001:db8::/32"
    )]
    Malformed(String),
    #[error("'{given}' has host bits set: the prefix is {corrected}")]
    HostBits { given: String, corrected: Prefix },
}

/// An address family, named as iproute2 names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    Inet,
    Inet6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::Inet, Self::Inet6];

    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Inet } else { Self::Inet6 }
    }

    /// The word before an address: `via inet6 2001:db8::1`.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Inet6 => "inet6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "IPv4",
            Self::Inet6 => "IPv6",
        })
    }
}

impl Prefix {
    /// # Errors
    ///
    /// Refuses host bits, and names the prefix without them.
    pub fn new(net: IpNet) -> Result<Self, PrefixError> {
        if net == net.trunc() {
            Ok(Self(net))
        } else {
            let corrected = Self(net.trunc());
            Err(PrefixError::HostBits { given: net.to_string(), corrected })
        }
    }

    /// The prefix of this address alone: /32 or /128.
    pub fn host(address: IpAddr) -> Self {
        Self(IpNet::from(address))
    }

    /// The prefix of this length that covers this one; itself, where it is not longer.
    #[must_use]
    pub fn shortened(self, len: u8) -> Self {
        IpNet::new(self.address(), len.min(self.len())).map_or(self, |net| Self(net.trunc()))
    }

    /// In the order of prefixes: numbers that are quick to compare.
    pub fn sort_key(&self) -> (bool, u128, u8) {
        match self.0 {
            IpNet::V4(net) => (false, net.addr().to_bits().into(), net.prefix_len()),
            IpNet::V6(net) => (true, net.addr().to_bits(), net.prefix_len()),
        }
    }

    pub fn address(&self) -> IpAddr {
        self.0.network()
    }

    /// The last address in it; of IPv4 that may be a broadcast address.
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    #[expect(clippy::len_without_is_empty, reason = "its bits; no prefix is empty")]
    pub fn len(&self) -> u8 {
        self.0.prefix_len()
    }

    pub fn is_ipv4(&self) -> bool {
        matches!(self.0, IpNet::V4(_))
    }

    pub fn family(&self) -> Family {
        if self.is_ipv4() { Family::Inet } else { Family::Inet6 }
    }

    /// 0.0.0.0/0 or ::/0.
    pub fn default_of(family: Family) -> Self {
        Self(match family {
            Family::Inet => IpNet::V4(Ipv4Net::default()),
            Family::Inet6 => IpNet::V6(Ipv6Net::default()),
        })
    }

    /// Whether it is 0.0.0.0/0 or ::/0.
    pub fn is_default(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is one address: /32 or /128.
    pub fn is_host(&self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Whether `other` is this prefix or a longer one below it.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// As iproute2 reads it: an address alone is a host prefix; `default` is left to the caller, who
/// knows the family.
impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let malformed = || PrefixError::Malformed(text.to_owned());
        if !text.contains('/') {
            return text.parse().map(Self::host).map_err(|_| malformed());
        }
        Self::new(text.parse().map_err(|_| malformed())?)
    }
}

/// As text. A load has a million of them: none is copied on its way.
impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl de::Visitor<'_> for Text {
    type Value = Prefix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Prefix, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_refused_and_the_prefix_is_named() {
        let error = "198.18.2.7/24".parse::<Prefix>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "'198.18.2.7/24' has host bits set: the prefix is 198.18.2.0/24"
        );
        let error = "2001:db8::1/64".parse::<Prefix>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "'2001:db8::1/64' has host bits set: the prefix is 2001:db8::/64"
        );
    }

    #[test]
    fn what_is_no_prefix_is_named() {
        for text in
            ["", "x", "198.18.2.0/33", "198.18.2/24", "2001:db8::/129", "1.2.3.4/-1", "198.18.2.0/"]
        {
            let error = text.parse::<Prefix>().unwrap_err();
            assert_eq!(error, PrefixError::Malformed(text.to_owned()));
        }
    }

    #[test]
    fn the_default_prefixes_have_length_zero() {
        assert_eq!(Prefix::default_of(Family::Inet).to_string(), "0.0.0.0/0");
        assert_eq!(Prefix::default_of(Family::Inet6).to_string(), "::/0");
        assert!(Prefix::default_of(Family::Inet6).is_default());
    }

    #[test]
    fn ipv4_comes_first_and_what_covers_before_what_is_covered() {
        let sorted = [
            "0.0.0.0/0",
            "9.0.0.0/8",
            "198.18.0.0/15",
            "198.18.0.0/16",
            "198.18.0.1/32",
            "::/0",
            "2001:db8::/32",
            "2001:db8::/48",
            "2001:db8:1::/48",
        ]
        .map(|text| text.parse::<Prefix>().unwrap());
        assert!(sorted.is_sorted() && sorted.map(|prefix| prefix.sort_key()).is_sorted());
        assert_eq!(sorted[2].cmp(&sorted[2]), Ordering::Equal);
    }

    #[test]
    fn an_address_alone_is_a_host_prefix() {
        assert_eq!("198.18.2.7".parse::<Prefix>().unwrap().len(), 32);
        assert_eq!("2001:db8::7".parse::<Prefix>().unwrap().len(), 128);
    }
}

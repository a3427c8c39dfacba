//! What Linux says that it did.

use std::fs;

use anyhow::{Context, Result};

use crate::host::Host;

/// Packets that Linux has forwarded on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// `Ip ForwDatagrams` of /proc/net/snmp.
    pub v4: u64,
    /// `Ip6OutForwDatagrams` of /proc/net/snmp6.
    pub v6: u64,
}

impl Forwarded {
    pub fn of(host: &Host) -> Result<Self> {
        // /proc/net is that of the process: the thread's own is asked for by name.
        let (snmp, snmp6) = host.run(|| {
            let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            anyhow::Ok((read("snmp")?, read("snmp6")?))
        })?;
        Ok(Self {
            v4: in_columns(&snmp, "Ip:", "ForwDatagrams").context("no ForwDatagrams in snmp")?,
            v6: in_rows(&snmp6, "Ip6OutForwDatagrams").context("no forwarded in snmp6")?,
        })
    }

    /// Since an earlier look.
    pub fn since(self, before: Self) -> Self {
        Self { v4: self.v4 - before.v4, v6: self.v6 - before.v6 }
    }
}

/// Two lines of the same title: names, then values.
fn in_columns(text: &str, title: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(title));
    let column = lines.next()?.split_whitespace().position(|column| column == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

/// A name and its value on each line.
fn in_rows(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_column() {
        let snmp = "Icmp: ForwDatagrams\nIcmp: 9\nIp: Forwarding ForwDatagrams In\nIp: 1 7 3\n";
        assert_eq!(in_columns(snmp, "Ip:", "ForwDatagrams"), Some(7));
        assert_eq!(in_columns(snmp, "Ip:", "Forw"), None);
    }

    #[test]
    fn a_counter_is_found_by_its_row() {
        let snmp6 = "Ip6InReceives   \t5\nIp6OutForwDatagrams  \t12\n";
        assert_eq!(in_rows(snmp6, "Ip6OutForwDatagrams"), Some(12));
        assert_eq!(in_rows(snmp6, "Ip6OutForw"), None);
    }
}

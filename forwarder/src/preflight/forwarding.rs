//! Whether Linux itself forwards: what XDP passes up needs it, and where we forward by Linux's
//! routes, we forward what it forwards.

use std::{fs, path::Path};

use forwarder_common::abi::{
    INTERFACE_HASH_ADDRESSES4, INTERFACE_HASH_ADDRESSES6, INTERFACE_LOOSE,
    INTERFACE_NO_FORWARDING4, INTERFACE_NO_FORWARDING6, INTERFACE_STRICT,
};

use crate::{config::RouteSource, prefix::Family};

/// What Linux does with packets that come in by one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    ipv4: Option<bool>,
    ipv6_disabled: Option<bool>,
    ipv6_forced: Option<bool>,
    /// The larger one of `all` and the interface's.
    rp_filter: Option<u8>,
}

/// The sysctls that decide, of a network namespace and some of its interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    ipv4: Option<bool>,
    ipv6: Option<bool>,
    interfaces: Vec<Interface>,
    /// `fib_multipath_hash_policy` of IPv4 and IPv6.
    hash_policies: [Option<u8>; 2],
    use_pmtu: Option<bool>,
}

/// Flows by addresses alone (`fib_multipath_hash()`), and by ports too.
const HASH_ADDRESSES: u8 = 0;
const HASH_PORTS: u8 = 1;
/// Values of `rp_filter`.
const STRICT: u8 = 1;
const LOOSE: u8 = 2;

impl Forwarding {
    /// Of the network namespace of the calling thread. `proc` is where procfs is mounted.
    pub fn read(proc: &Path, interfaces: &[&str]) -> Self {
        read(proc, interfaces)
    }

    /// What Linux does not forward of that which comes in by an interface: bits of
    /// [`forwarder_common::abi::Interface::flags`].
    ///
    /// IPv4 is forwarded where the interface says so (`IN_DEV_FORWARD`), IPv6 where it is switched
    /// on for all or forced there (`ip6_forward()`), and not disabled there.
    pub fn flags(&self, interface: &str) -> u16 {
        let Some(interface) = self.interfaces.iter().find(|it| it.name == interface) else {
            return 0;
        };
        let no_ipv4 = interface.ipv4 == Some(false) || self.use_pmtu == Some(true);
        let no_ipv6 = self.ipv6 == Some(false) && interface.ipv6_forced != Some(true)
            || interface.ipv6_disabled == Some(true);
        let reverse_path = match interface.rp_filter {
            Some(STRICT) => INTERFACE_STRICT,
            Some(LOOSE..) => INTERFACE_LOOSE,
            _ => 0,
        };
        let by_addresses = self.hash_policies.map(|policy| policy == Some(HASH_ADDRESSES));
        let flags = [
            (no_ipv4, INTERFACE_NO_FORWARDING4),
            (no_ipv6, INTERFACE_NO_FORWARDING6),
            (by_addresses[0], INTERFACE_HASH_ADDRESSES4),
            (by_addresses[1], INTERFACE_HASH_ADDRESSES6),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag);
        set.fold(reverse_path, |all, flag| all | flag)
    }

    /// Whether Linux spreads the flows of a family by a hash that is not ours.
    pub fn hashes_otherwise(&self, family: Family) -> bool {
        let policy = self.hash_policies[usize::from(family == Family::Inet6)];
        policy.is_some_and(|policy| policy > HASH_PORTS)
    }

    /// Sentences for `status`.
    pub fn notes(&self, routes: RouteSource) -> Vec<String> {
        notes(self, routes)
    }
}

fn read(proc: &Path, interfaces: &[&str]) -> Forwarding {
    let flag = |path: &str| {
        let value = fs::read_to_string(proc.join("sys/net").join(path)).ok()?;
        Some(value.trim() != "0")
    };
    let number = |path: &str| {
        let value = fs::read_to_string(proc.join("sys/net").join(path)).ok()?;
        value.trim().parse::<u8>().ok()
    };
    let interface = |&name: &&str| Interface {
        name: name.to_owned(),
        ipv4: flag(&format!("ipv4/conf/{name}/forwarding")),
        ipv6_disabled: flag(&format!("ipv6/conf/{name}/disable_ipv6")),
        ipv6_forced: flag(&format!("ipv6/conf/{name}/force_forwarding")),
        rp_filter: number("ipv4/conf/all/rp_filter")
            .max(number(&format!("ipv4/conf/{name}/rp_filter"))),
    };
    Forwarding {
        ipv4: flag("ipv4/ip_forward"),
        ipv6: flag("ipv6/conf/all/forwarding"),
        interfaces: interfaces.iter().map(interface).collect(),
        hash_policies: ["ipv4", "ipv6"]
            .map(|family| number(&format!("{family}/fib_multipath_hash_policy"))),
        use_pmtu: flag("ipv4/ip_forward_use_pmtu"),
    }
}

fn notes(forwarding: &Forwarding, routes: RouteSource) -> Vec<String> {
    let note = |sysctl: &str| note(sysctl, routes);
    let mut notes = Vec::new();
    let interfaces = &forwarding.interfaces;
    let off: Vec<_> = interfaces.iter().filter(|one| one.ipv4 == Some(false)).collect();
    if forwarding.ipv4 == Some(false) && off.len() == interfaces.len() {
        notes.push(note("net.ipv4.ip_forward"));
    } else {
        notes.extend(off.iter().map(|one| note(&format!("net.ipv4.conf.{}.forwarding", one.name))));
    }
    let all_forced = interfaces.iter().all(|one| one.ipv6_forced == Some(true));
    if forwarding.ipv6 == Some(false) && !all_forced {
        notes.push(note("net.ipv6.conf.all.forwarding"));
    }
    for Interface { name, .. } in interfaces.iter().filter(|one| one.ipv6_disabled == Some(true)) {
        notes.push(format!(
            "net.ipv6.conf.{name}.disable_ipv6 is 1: Linux neither answers nor resolves IPv6 \
             neighbours there (`sysctl -w net.ipv6.conf.{name}.disable_ipv6=0`)"
        ));
    }
    if routes == RouteSource::Kernel && forwarding.use_pmtu == Some(true) {
        notes.push(
            "net.ipv4.ip_forward_use_pmtu is 1: Linux forwards by MTUs that it has learnt and \
             nobody is told of, so no IPv4 is forwarded in XDP \
             (`sysctl -w net.ipv4.ip_forward_use_pmtu=0`)"
                .to_owned(),
        );
    }
    notes
}

fn note(sysctl: &str, routes: RouteSource) -> String {
    let effect = match routes {
        RouteSource::Kernel => "Linux does not forward there, so nothing is forwarded in XDP",
        RouteSource::Static => {
            "XDP forwards, but what it passes up Linux will neither forward nor answer with ICMP \
             errors"
        }
    };
    format!("{sysctl} is 0: {effect} (`sysctl -w {sysctl}=1`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One digit each: `ip_forward` and `all.forwarding`; then of each interface IPv4, disabled,
    /// forced.
    fn forwarding(all: [u8; 2], interfaces: &[(&str, [u8; 3])]) -> Forwarding {
        let flag = |digit| Some(digit == 1);
        Forwarding {
            ipv4: flag(all[0]),
            ipv6: flag(all[1]),
            interfaces: interfaces
                .iter()
                .map(|&(name, flags)| Interface {
                    name: name.into(),
                    ipv4: flag(flags[0]),
                    ipv6_disabled: flag(flags[1]),
                    ipv6_forced: flag(flags[2]),
                    rp_filter: None,
                })
                .collect(),
            hash_policies: [None; 2],
            use_pmtu: None,
        }
    }

    #[test]
    fn sysctls_that_are_off() {
        let on = [("eth0", [1, 0, 0]), ("eth1", [1, 0, 0])];
        let off = [("eth0", [0, 0, 0]), ("eth1", [0, 0, 0])];
        let one = [("eth0", [1, 0, 0]), ("eth1", [0, 0, 0])];
        let forced = [("eth0", [1, 0, 1]), ("eth1", [1, 0, 1])];
        let disabled = [("eth0", [1, 1, 0]), ("eth1", [1, 0, 0])];
        let cases: [(_, &[&str]); 7] = [
            (forwarding([1, 1], &on), &[]),
            (forwarding([0, 0], &off), &["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]),
            (forwarding([0, 1], &on), &[]),
            (forwarding([1, 1], &one), &["net.ipv4.conf.eth1.forwarding"]),
            (forwarding([0, 1], &one), &["net.ipv4.conf.eth1.forwarding"]),
            (forwarding([1, 0], &forced), &[]),
            (forwarding([1, 1], &disabled), &["net.ipv6.conf.eth0.disable_ipv6"]),
        ];
        for (forwarding, expected) in cases {
            let sysctls: Vec<_> = notes(&forwarding, RouteSource::Static)
                .iter()
                .map(|note| note.split(' ').next().unwrap().to_owned())
                .collect();
            assert_eq!(sysctls, expected, "{forwarding:?}");
        }
        assert_eq!(
            notes(&forwarding([0, 1], &off), RouteSource::Static)[0],
            "net.ipv4.ip_forward is 0: XDP forwards, but what it passes up Linux will neither \
             forward nor answer with ICMP errors (`sysctl -w net.ipv4.ip_forward=1`)"
        );
    }

    #[test]
    fn what_linux_does_not_forward_we_do_not_either() {
        let (no4, no6) = (INTERFACE_NO_FORWARDING4, INTERFACE_NO_FORWARDING6);
        // `all.forwarding`; then of the interface IPv4, disabled, forced.
        for (all, interface, flags) in [
            (1, [1, 0, 0], 0),
            (1, [0, 0, 0], no4),
            (0, [1, 0, 0], no6),
            (0, [1, 0, 1], 0),
            (0, [0, 0, 0], no4 | no6),
            (1, [1, 1, 0], no6),
            (0, [1, 1, 1], no6),
        ] {
            // `ip_forward` itself decides nothing: it is written to the interfaces.
            let forwarding = forwarding([0, all], &[("eth0", interface)]);
            assert_eq!(forwarding.flags("eth0"), flags, "{forwarding:?}");
            assert_eq!(forwarding.flags("eth9"), 0);
        }
    }

    #[test]
    fn reverse_paths_hashes_and_learnt_mtus() {
        let mut it = forwarding([1, 1], &[("eth0", [1, 0, 0])]);
        for (rp_filter, flags) in
            [(0, 0), (1, INTERFACE_STRICT), (2, INTERFACE_LOOSE), (7, INTERFACE_LOOSE)]
        {
            it.interfaces[0].rp_filter = Some(rp_filter);
            assert_eq!(it.flags("eth0"), flags, "{rp_filter}");
        }
        it.interfaces[0].rp_filter = None;
        it.hash_policies = [Some(0), Some(1)];
        assert_eq!(it.flags("eth0"), INTERFACE_HASH_ADDRESSES4);
        it.hash_policies = [Some(2), Some(0)];
        assert_eq!(it.flags("eth0"), INTERFACE_HASH_ADDRESSES6);
        assert_eq!(Family::ALL.map(|family| it.hashes_otherwise(family)), [true, false]);
        it.use_pmtu = Some(true);
        assert_eq!(it.flags("eth0") & INTERFACE_NO_FORWARDING4, INTERFACE_NO_FORWARDING4);
        let notes = it.notes(RouteSource::Kernel);
        assert!(notes[0].starts_with("net.ipv4.ip_forward_use_pmtu is 1"), "{notes:?}");
        assert_eq!(it.notes(RouteSource::Static), [""; 0]);
    }

    #[test]
    fn sysctls_are_read_from_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join("sys/net").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("ipv4/ip_forward", "0\n");
        write("ipv4/conf/eth.7/forwarding", "1\n");
        write("ipv6/conf/all/forwarding", "1\n");
        write("ipv6/conf/eth.7/disable_ipv6", "1\n");
        write("ipv4/conf/all/rp_filter", "2\n");
        write("ipv4/conf/eth.7/rp_filter", "1\n");
        write("ipv6/fib_multipath_hash_policy", "3\n");
        write("ipv4/ip_forward_use_pmtu", "0\n");
        let expected = Forwarding {
            ipv4: Some(false),
            ipv6: Some(true),
            interfaces: vec![Interface {
                name: "eth.7".into(),
                ipv4: Some(true),
                ipv6_disabled: Some(true),
                ipv6_forced: None,
                rp_filter: Some(2),
            }],
            hash_policies: [None, Some(3)],
            use_pmtu: Some(false),
        };
        assert_eq!(read(directory.path(), &["eth.7"]), expected);
        let nothing = Forwarding::read(Path::new("/nonexistent"), &["eth0"]);
        assert_eq!(nothing.notes(RouteSource::Kernel), [""; 0]);
        assert_eq!(nothing.flags("eth0"), 0);
    }
}

//! Whether Linux itself forwards: what XDP passes up needs it.

use std::{fs, path::Path};

/// What Linux does with packets that come in by one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    ipv4: Option<bool>,
    ipv6_disabled: Option<bool>,
    ipv6_forced: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Forwarding {
    ipv4: Option<bool>,
    ipv6: Option<bool>,
    interfaces: Vec<Interface>,
}

/// Sentences for `status`, in the network namespace of the calling thread. `proc` is where procfs
/// is mounted.
pub fn forwarding_notes(proc: &Path, interfaces: &[&str]) -> Vec<String> {
    notes(&read(proc, interfaces))
}

fn read(proc: &Path, interfaces: &[&str]) -> Forwarding {
    let flag = |path: &str| {
        let value = fs::read_to_string(proc.join("sys/net").join(path)).ok()?;
        Some(value.trim() != "0")
    };
    let interface = |&name: &&str| Interface {
        name: name.to_owned(),
        ipv4: flag(&format!("ipv4/conf/{name}/forwarding")),
        ipv6_disabled: flag(&format!("ipv6/conf/{name}/disable_ipv6")),
        ipv6_forced: flag(&format!("ipv6/conf/{name}/force_forwarding")),
    };
    Forwarding {
        ipv4: flag("ipv4/ip_forward"),
        ipv6: flag("ipv6/conf/all/forwarding"),
        interfaces: interfaces.iter().map(interface).collect(),
    }
}

fn notes(forwarding: &Forwarding) -> Vec<String> {
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
    notes
}

fn note(sysctl: &str) -> String {
    format!(
        "{sysctl} is 0: XDP forwards, but what it passes up Linux will neither forward nor answer \
         with ICMP errors (`sysctl -w {sysctl}=1`)"
    )
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
                })
                .collect(),
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
            let sysctls: Vec<_> = notes(&forwarding)
                .iter()
                .map(|note| note.split(' ').next().unwrap().to_owned())
                .collect();
            assert_eq!(sysctls, expected, "{forwarding:?}");
        }
        assert_eq!(
            notes(&forwarding([0, 1], &off))[0],
            "net.ipv4.ip_forward is 0: XDP forwards, but what it passes up Linux will neither \
             forward nor answer with ICMP errors (`sysctl -w net.ipv4.ip_forward=1`)"
        );
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
        let expected = Forwarding {
            ipv4: Some(false),
            ipv6: Some(true),
            interfaces: vec![Interface {
                name: "eth.7".into(),
                ipv4: Some(true),
                ipv6_disabled: Some(true),
                ipv6_forced: None,
            }],
        };
        assert_eq!(read(directory.path(), &["eth.7"]), expected);
        assert_eq!(forwarding_notes(Path::new("/nonexistent"), &["eth0"]), [""; 0]);
    }
}

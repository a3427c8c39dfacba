//! Whether the person who starts the forwarder is logged in over the network, and from where.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::host::field;

/// Processes between us and the login shell.
const ANCESTORS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) client: IpAddr,
    /// The interface, where a link-local address names one.
    pub(super) scope: Option<String>,
}

/// The login from which this process stems. sudo clears the environment, so the parents' are read
/// too, as far as we may. A login to another network namespace than this is none of our concern.
pub(super) fn find(proc: &Path) -> Option<Login> {
    let (process, login) = ancestors(proc)
        .filter_map(|process| {
            let environment = fs::read(process.join("environ")).ok()?;
            Some((process, parse_environment(&environment)?))
        })
        .last()?;
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    match (namespace(&process), namespace(&proc.join("thread-self"))) {
        (Some(theirs), Some(ours)) if theirs != ours => None,
        _ => Some(login),
    }
}

/// Directories of this process and its ancestors, the nearest first.
fn ancestors(proc: &Path) -> impl Iterator<Item = PathBuf> {
    let parent = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let parent: u32 = field(&status, "PPid:").next()?.parse().ok()?;
        (parent != 0).then(|| proc.join(parent.to_string()))
    };
    std::iter::successors(Some(proc.join("self")), parent).take(ANCESTORS_MAX)
}

fn parse_environment(environment: &[u8]) -> Option<Login> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"SSH_CONNECTION="))?;
    parse_connection(std::str::from_utf8(value).ok()?)
}

/// "CLIENT PORT SERVER PORT".
fn parse_connection(connection: &str) -> Option<Login> {
    let client = connection.split_whitespace().next()?;
    let (address, scope) = match client.split_once('%') {
        Some((address, scope)) => (address, Some(scope.to_owned())),
        None => (client, None),
    };
    // sshd on a dual-stack socket.
    let client = address.parse::<IpAddr>().ok()?.to_canonical();
    Some(Login { client, scope })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connections() {
        let login = |client: &str, scope: Option<&str>| {
            Some(Login { client: client.parse().unwrap(), scope: scope.map(str::to_owned) })
        };
        let cases = [
            ("198.18.0.9 50000 198.18.0.1 22", login("198.18.0.9", None)),
            ("2001:db8::9 50000 2001:db8::1 22", login("2001:db8::9", None)),
            ("::ffff:198.18.0.9 50000 ::ffff:198.18.0.1 22", login("198.18.0.9", None)),
            ("fe80::9%eth0 50000 fe80::1%eth0 22", login("fe80::9", Some("eth0"))),
            ("", None),
            ("UNKNOWN 65535 UNKNOWN 65535", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_connection(text), expected, "{text}");
        }
    }

    struct Processes(tempfile::TempDir);

    impl Processes {
        fn add(&self, name: &str, parent: u32, environment: &[u8], namespace: &str) {
            let process = self.0.path().join(name);
            fs::create_dir_all(process.join("ns")).unwrap();
            fs::write(process.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
            fs::write(process.join("environ"), environment).unwrap();
            symlink(format!("net:[{namespace}]"), process.join("ns/net")).unwrap();
        }
    }

    #[test]
    fn the_oldest_ancestor_counts_and_only_in_this_namespace() {
        let ssh = b"PATH=/bin\0SSH_CONNECTION=198.18.0.9 50000 198.18.0.1 22\0";
        let stale = b"SSH_CONNECTION=198.18.0.7 50000 198.18.0.1 22\0";
        let cases = [
            ("of ours", &ssh[..], &b""[..], "1", Some("198.18.0.9")),
            ("of a parent, behind sudo", b"", ssh, "1", Some("198.18.0.9")),
            ("of both", stale, ssh, "1", Some("198.18.0.9")),
            ("to another namespace", ssh, ssh, "2", None),
            ("none", b"HOME=/", b"HOME=/\0", "1", None),
        ];
        for (name, own, parents, namespace, expected) in cases {
            let processes = Processes(tempfile::tempdir().unwrap());
            processes.add("self", 20, own, "1");
            processes.add("thread-self", 20, own, "1");
            processes.add("20", 10, b"", "1");
            processes.add("10", 1, parents, namespace);
            let client = find(processes.0.path()).map(|login| login.client);
            assert_eq!(client, expected.map(|client| client.parse().unwrap()), "{name}");
        }
    }

    #[test]
    fn a_loop_of_parents_ends() {
        let processes = Processes(tempfile::tempdir().unwrap());
        processes.add("self", 20, b"", "1");
        processes.add("20", 20, b"", "1");
        assert_eq!(find(processes.0.path()), None);
    }

    proptest! {
        #[test]
        fn any_environment_is_parsed_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = parse_environment(&[b"SSH_CONNECTION=", &bytes[..]].concat());
            let _ = parse_environment(&bytes);
        }
    }
}

//! What this process may do, and what its kernel can.

use std::{fs, path::Path};

use super::{Machine, problem::Problem};

/// The oldest kernel that has everything: frags on all XDP programs, BTF tracepoints, managed
/// neighbours.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// How many user ids there are in a namespace that is the host's own.
const ALL_IDS: &str = "4294967295";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Effective user id.
    uid: u32,
    /// Effective capabilities, a bit each.
    capabilities: u64,
    user_namespace: bool,
    release: String,
    has_btf: bool,
    /// `None` where the kernel does not tell.
    jit: Option<bool>,
}

impl Host {
    pub(super) fn read(machine: &Machine) -> Self {
        let Machine { proc, sys, .. } = machine;
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let status = text(&proc.join("self/status"));
        Self {
            uid: field(&status, "Uid:").nth(1).and_then(|uid| uid.parse().ok()).unwrap_or(u32::MAX),
            capabilities: field(&status, "CapEff:")
                .next()
                .and_then(|bits| u64::from_str_radix(bits, 16).ok())
                .unwrap_or(0),
            user_namespace: !holds_all_ids(&text(&proc.join("self/uid_map"))),
            release: text(&proc.join("sys/kernel/osrelease")).trim().to_owned(),
            has_btf: sys.join("kernel/btf/vmlinux").exists(),
            jit: match text(&proc.join("sys/net/core/bpf_jit_enable")).trim() {
                "" => None,
                value => Some(value != "0"),
            },
        }
    }
}

pub(super) fn check_privileges(host: &Host, command: &str) -> Result<(), Problem> {
    let command = command.to_owned();
    let missing = missing_capabilities(host.capabilities);
    if !missing.is_empty() {
        let missing = enumerate(&missing);
        return Err(if host.uid == 0 {
            Problem::Container { missing }
        } else {
            Problem::NotRoot { missing, command }
        });
    }
    if host.user_namespace {
        return Err(Problem::UserNamespace { command });
    }
    Ok(())
}

pub(super) fn check_kernel(host: &Host) -> Vec<Problem> {
    let mut problems = Vec::new();
    // A release that cannot be read is no reason to refuse: what is missing shows at the load.
    if parse_release(&host.release).is_some_and(|release| release < KERNEL_MIN) {
        problems.push(Problem::Kernel { release: host.release.clone() });
    }
    if !host.has_btf {
        problems.push(Problem::Btf);
    }
    problems
}

pub(super) fn warnings(host: &Host) -> Vec<String> {
    let off = "the kernel interprets BPF programs instead of compiling them, which makes forwarding \
               many times slower: `sysctl -w net.core.bpf_jit_enable=1`";
    if host.jit == Some(false) { vec![off.to_owned()] } else { Vec::new() }
}

/// Of what loading, attaching and tracing take.
fn missing_capabilities(effective: u64) -> Vec<&'static str> {
    // `linux/capability.h`
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let has = |capability: u32| effective & (1 << capability) != 0;
    let mut missing = Vec::new();
    if !has(CAP_NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if !has(CAP_SYS_ADMIN) && !has(CAP_BPF) {
        missing.push("CAP_BPF");
    }
    if !has(CAP_SYS_ADMIN) && !has(CAP_PERFMON) {
        missing.push("CAP_PERFMON");
    }
    missing
}

/// "a", "a and b", "a, b and c".
fn enumerate(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The words behind a key of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default().split_whitespace()
}

fn holds_all_ids(uid_map: &str) -> bool {
    let words: Vec<_> = uid_map.split_whitespace().collect();
    // A file that cannot be read says nothing.
    words.is_empty() || words == ["0", "0", ALL_IDS]
}

/// Major and minor of "6.18.44-arch".
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOT: u64 = 0x1ff_ffff_ffff;
    /// What docker gives.
    const CONTAINER: u64 = 0xa804_25fb;
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;

    fn host() -> Host {
        Host {
            uid: 0,
            capabilities: ROOT,
            user_namespace: false,
            release: "6.18.44".into(),
            has_btf: true,
            jit: Some(true),
        }
    }

    #[test]
    fn privileges() {
        let sudo = "run it as root: sudo -- forwarder run";
        let cases = [
            (0, ROOT, false, String::new()),
            (1000, NET_ADMIN | BPF | PERFMON, false, String::new()),
            (1000, NET_ADMIN | SYS_ADMIN, false, String::new()),
            (
                1000,
                0,
                false,
                format!("forwarder needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON: {sudo}"),
            ),
            (1000, BPF | PERFMON, false, format!("forwarder needs CAP_NET_ADMIN: {sudo}")),
            (1000, NET_ADMIN | BPF, false, format!("forwarder needs CAP_PERFMON: {sudo}")),
            (
                0,
                CONTAINER,
                false,
                "root lacks CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON here, as in a container: start \
                 that with `docker run --network host --cap-add NET_ADMIN --cap-add BPF --cap-add \
                 PERFMON -v /sys/fs/bpf:/sys/fs/bpf`"
                    .to_owned(),
            ),
            (
                0,
                ROOT,
                true,
                "root of a user namespace (a rootless container, `unshare --user`) may not load \
                 BPF programs: run it as root of the host: sudo -- forwarder run"
                    .to_owned(),
            ),
        ];
        for (uid, capabilities, user_namespace, expected) in cases {
            let host = Host { uid, capabilities, user_namespace, ..host() };
            let problem = check_privileges(&host, "forwarder run").err();
            assert_eq!(problem.map_or(String::new(), |problem| problem.to_string()), expected);
        }
    }

    #[test]
    fn kernels() {
        let messages =
            |host: &Host| check_kernel(host).iter().map(ToString::to_string).collect::<Vec<_>>();
        for release in ["6.1.0", "6.18.44-fc-v782", "7.0-rc1", "10.2", "unreadable", ""] {
            assert_eq!(messages(&Host { release: release.into(), ..host() }), [""; 0], "{release}");
        }
        let old = Host { release: "5.15.0-91-generic".into(), has_btf: false, ..host() };
        assert_eq!(
            messages(&old),
            [
                "Linux 5.15.0-91-generic is too old: 6.1 or newer is needed",
                "this kernel does not describe its types (no /sys/kernel/btf/vmlinux): boot one that \
             is built with CONFIG_DEBUG_INFO_BTF, as distributions' kernels are",
            ]
        );
        assert_eq!(messages(&Host { release: "6.0.19".into(), ..host() }).len(), 1);
    }

    #[test]
    fn an_interpreter_is_warned_about() {
        assert_eq!(warnings(&host()), [""; 0]);
        assert_eq!(warnings(&Host { jit: None, ..host() }), [""; 0]);
        assert_eq!(warnings(&Host { jit: Some(false), ..host() }).len(), 1);
    }

    #[test]
    fn a_host_is_read_from_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let machine = Machine {
            proc: directory.path().join("proc"),
            sys: directory.path().join("sys"),
            namespaces: vec![],
            command: String::new(),
        };
        write("proc/self/status", "Name:\tx\nUid:\t1000\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
        write("proc/self/uid_map", "         0          0 4294967295\n");
        write("proc/sys/kernel/osrelease", "6.18.44\n");
        write("proc/sys/net/core/bpf_jit_enable", "1\n");
        write("sys/kernel/btf/vmlinux", "");
        assert_eq!(Host::read(&machine), host());

        write("proc/self/uid_map", "0 100000 65536\n");
        write("proc/sys/net/core/bpf_jit_enable", "0\n");
        let expected = Host { user_namespace: true, jit: Some(false), ..host() };
        assert_eq!(Host::read(&machine), expected);

        let nothing =
            Machine { proc: "/nonexistent".into(), sys: "/nonexistent".into(), ..machine };
        let host = Host::read(&nothing);
        assert_eq!((host.uid, host.capabilities, host.has_btf), (u32::MAX, 0, false));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".{0,200}") {
            let _ = (parse_release(&text), holds_all_ids(&text), field(&text, "Uid:").count());
        }
    }
}

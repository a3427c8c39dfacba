//! A host: a network namespace that is silent unless spoken to, so that frames can be counted.

use std::{
    ffi::OsStr,
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    netns::Namespace,
    offload::{self, Offload},
    process,
    wire::Wire,
};

/// Set before any interface exists, since interfaces inherit `default` when they are made.
const QUIET: &[(&str, &str)] = &[
    // Distributions differ in these; namespaces inherit the IPv4 ones from the machine.
    ("ipv4/ip_forward", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // Everybody may have a ping socket.
    ("ipv4/ping_group_range", "0 2147483647"),
    // ICMP errors for every cause of one: tests count them.
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    // No address and no question that nobody asked for.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // MLDv1 reports a group at once, when it is joined, and again after a random time up to this
    // many milliseconds: 24 days. (MLDv2 has a timer for the first report, too.)
    ("ipv6/conf/default/force_mld_version", "1"),
    ("ipv6/conf/default/mldv1_unsolicited_report_interval", "2147483647"),
];

#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub namespace: Namespace,
    _resident: Arc<Resident>,
}

/// A process on a host. A namespace can do without, but others find one by the processes in it:
/// so the forwarder looks at the far ends of its links.
#[derive(Debug)]
struct Resident(Child);

impl Host {
    pub fn new(name: &str) -> Result<Self> {
        let namespace = Namespace::new().context("make a network namespace (are you root?)")?;
        let host = Self::inside(name, namespace)?;
        for (key, value) in QUIET {
            host.sysctl(key, value)?;
        }
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// A host in a namespace that is there already, as it is.
    pub fn inside(name: &str, namespace: Namespace) -> Result<Self> {
        let resident = Arc::new(Resident::of(&namespace)?);
        Ok(Self { name: name.into(), namespace, _resident: resident })
    }

    /// Runs `ip` inside with these arguments, separated by spaces.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        let mut command = self.command("ip");
        command.args(arguments.split_whitespace());
        process::output(command, Duration::from_secs(20))
            .with_context(|| format!("ip {arguments} on {}", self.name))
    }

    /// `key` is a path below /proc/sys/net, such as `ipv4/ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.run(|| fs::write(&path, value))
            .with_context(|| format!("write {value} to {path} on {}", self.name))
    }

    pub fn offload(&self, interface: &str, offload: Offload, on: bool) -> Result<()> {
        self.run(|| offload::set(interface, offload, on))
    }

    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Does the work in the host's network: see [`Namespace::run`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    pub fn wire(&self, interface: &str) -> Result<Wire> {
        self.run(|| Wire::open(interface))
            .with_context(|| format!("open {interface} on {}", self.name))
    }
}

impl Resident {
    /// It reads from us and ends when nobody is left to write, however we ended.
    fn of(namespace: &Namespace) -> Result<Self> {
        let mut cat = namespace.command("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::null());
        cat.spawn().map(Self).context("start cat")
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // This closes its input, too. It can only fail for a child that was waited for.
        let _ = self.0.wait();
    }
}

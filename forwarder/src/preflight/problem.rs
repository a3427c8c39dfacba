//! Everything that can stand against forwarding: the thing, and the remedy.

use std::{io, net::IpAddr};

use crate::{
    bypass::Finding,
    netlink::{RequestError, XdpAttachment, XdpMode},
};

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("forwarder needs {missing}: run it as root: sudo -- {command}")]
    NotRoot { missing: String, command: String },
    #[error(
        "root lacks {missing} here, as in a container: start that with `docker run --network host \
         {} -v /sys/fs/bpf:/sys/fs/bpf`", capability_options(.missing)
    )]
    Container { missing: String },
    #[error(
        "root of a user namespace (a rootless container, `unshare --user`) may not load BPF \
         programs: run it as root of the host: sudo -- {command}"
    )]
    UserNamespace { command: String },
    #[error("Linux {release} is too old: 6.1 or newer is needed")]
    Kernel { release: String },
    #[error(
        "this kernel does not describe its types (no /sys/kernel/btf/vmlinux): boot one that is \
         built with CONFIG_DEBUG_INFO_BTF, as distributions' kernels are"
    )]
    Btf,
    #[error("cannot read which CPUs there are: {0}")]
    Cpus(#[source] io::Error),
    #[error("CPU {cpu} of --steer is not online: online are {online}")]
    CpuOffline { cpu: u32, online: String },

    #[error("there is no interface '{name}' in this network namespace: there are {known}")]
    NoSuchInterface { name: String, known: String },
    #[error("interface {0} is named twice: name each one once")]
    NamedTwice(String),
    #[error("{one} and {other} are the same interface: name it once")]
    SameInterface { one: String, other: String },
    #[error("{0} is the loopback interface: name Ethernet interfaces")]
    Loopback(String),
    #[error(
        "{0} has no Ethernet address, and frames cannot be addressed to it: name Ethernet interfaces"
    )]
    NotEthernet(String),
    #[error(
        "{name} belongs to {controller}, which takes its frames: take it out with `ip link set \
         {name} nomaster`, or do not name it"
    )]
    Enslaved { name: String, controller: String },
    #[error(
        "the {kind} {above} upon {name} takes frames that have {name}'s address: remove it with \
         `ip link del {above}`, or do not name {name}"
    )]
    Covered { name: String, above: String, kind: String },
    #[error(
        "{name} is a {kind}, and XDP has to run below it: name the interfaces that it lies upon{}",
        parenthesis(.below)
    )]
    Stacked { name: String, kind: String, below: Vec<String> },
    #[error("{name} has an XDP program already ({}): remove it with `{}`; if that is refused, \
         something holds it: what a killed forwarder of another name has left (`ls /sys/fs/bpf/forwarder`) \
         goes with `forwarder --name NAME unload`, else see `bpftool link`", describe(.attached), removal(.name, .attached))]
    ForeignProgram { name: String, attached: Vec<XdpAttachment> },
    #[error(
        "{name}'s receive VLAN offload hides the tag of VLAN frames from XDP, which would forward \
         them without it: switch it off with `ethtool -K {name} rxvlan off`"
    )]
    VlanOffload { name: String },
    #[error(
        "{name} gets frames with unfinished checksums, which its peer {peer} leaves to hardware: \
         switch that off with `{command}`"
    )]
    PeerChecksums { name: String, peer: String, command: String },
    #[error(
        "{name} may get frames with unfinished checksums, and its peer cannot be seen from here: \
         run `ethtool -K PEER tx off` in the peer's network namespace, then say so with \
         --accept-unfinished-checksums"
    )]
    UnseenPeer { name: String },
    #[error(
        "{name} may get frames with unfinished checksums from the virtual machine behind it: run \
         `ethtool -K INTERFACE tx off` in there, then say so with --accept-unfinished-checksums"
    )]
    TapChecksums { name: String },
    #[error(
        "this login (SSH from {client}) comes in by {interface}, and could be cut off: add --yes \
         if you have another way in"
    )]
    Login { interface: String, client: IpAddr },
    #[error(
        "XDP would bypass {} for {}: {}, or say that nobody needs it with --bypass={}",
        .0.what, .0.families, .0.remedy, .0.kind.word()
    )]
    Bypassed(Finding),
    #[error(
        "and {count} more that XDP would bypass: to forward in spite of all of them takes \
         --bypass={words}"
    )]
    MoreBypassed { count: usize, words: String },
    #[error("cannot look for what XDP would bypass: {0}")]
    Unreadable(#[source] io::Error),
    #[error(transparent)]
    Netlink(#[from] RequestError),
}

/// "CAP_BPF and CAP_PERFMON" into options of docker.
fn capability_options(missing: &str) -> String {
    let names = missing.split([',', ' ']).filter_map(|word| word.strip_prefix("CAP_"));
    names.map(|name| format!("--cap-add {name}")).collect::<Vec<_>>().join(" ")
}

fn parenthesis(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

fn describe(attached: &[XdpAttachment]) -> String {
    let one = |&XdpAttachment { mode, program }: &XdpAttachment| match mode {
        XdpMode::Native => format!("id {program}, native"),
        XdpMode::Generic => format!("id {program}, generic"),
        XdpMode::Offloaded => format!("id {program}, offloaded"),
        XdpMode::Unknown => format!("id {program}"),
    };
    attached.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The commands that detach these programs.
fn removal(name: &str, attached: &[XdpAttachment]) -> String {
    let one = |attached: &XdpAttachment| {
        let place = match attached.mode {
            XdpMode::Native | XdpMode::Unknown => "xdp",
            XdpMode::Generic => "xdpgeneric",
            XdpMode::Offloaded => "xdpoffload",
        };
        format!("ip link set dev {name} {place} off")
    };
    attached.iter().map(one).collect::<Vec<_>>().join(" && ")
}

//! What can be typed, and the help that goes with it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use forwarder_common::abi::{ROUTE_IDS_MAX, ROUTES4_MAX, ROUTES6_MAX};

use super::stats::StatsArgs;

/// Frames that one CPU's queue can hold (the kernel's limit for a CPUMAP).
const QUEUE_SIZE_MAX: i64 = 16_384;
/// Routes of a family for which memory is reserved at most.
const ROUTES_LIMIT: i64 = 1 << 24;
const GRACE_MAX_S: i64 = 86_400;
const WAIT_MAX_S: u64 = 3_600;

/// Forwards packets between network interfaces in XDP, before Linux sees them
///
/// `forwarder run` is the daemon; every other command talks to it. What cannot be forwarded exactly
/// as Linux would do it is left to Linux, and counted with its reason.
#[derive(Debug, Parser)]
#[command(
    name = "forwarder",
    version,
    infer_subcommands = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_long_help = "\
Examples:
  sudo forwarder run --iface eth0,eth1
  sudo forwarder route add 198.19.2.0/24 via 198.18.2.2 dev eth1
  sudo forwarder route add 2001:db8:102::/48 via 2001:db8:2::2 dev eth1
  forwarder route show
  forwarder stats

Commands can be abbreviated: `forwarder ro sh`. Exit codes: 0 done, 1 refused, 2 wrong usage,
3 no daemon is running."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print JSON
    #[arg(short, long, global = true)]
    pub json: bool,
    /// Indent the JSON
    #[arg(short, long, global = true)]
    pub pretty: bool,
    /// IPv4 only; `default` means 0.0.0.0/0
    #[arg(short = '4', global = true, conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// IPv6 only; `default` means ::/0
    #[arg(short = '6', global = true)]
    pub ipv6: bool,
    /// Name of the forwarder [default: that of this network namespace, netns-COOKIE]
    #[arg(long, global = true, value_name = "NAME")]
    pub name: Option<String>,
    /// Where the control socket of each forwarder is
    #[arg(
        long,
        global = true,
        value_name = "DIRECTORY",
        env = "FORWARDER_RUN_DIR",
        default_value = "/run/forwarder",
        value_hint = ValueHint::DirPath
    )]
    pub run_dir: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    /// Show interfaces, number of routes, and what a user should know
    #[command(after_help = "Example:\n  forwarder -j -p status")]
    Status,
    /// Show what was forwarded and what was left to Linux, and why
    #[command(after_help = "\
Examples:
  forwarder stats --per-cpu
  forwarder stats -w 1 --per-interface
  forwarder stats -w 1 -n 100 --summary       means over 100 s")]
    Stats(StatsArgs),
    /// Change and show routes
    #[command(visible_alias = "r")]
    Route {
        /// Without one: show all routes
        #[command(subcommand)]
        command: Option<RouteCommand>,
    },
    /// Show the neighbours that routes lead over
    #[command(aliases = ["neighbour", "neighbor"])]
    Neigh {
        /// Without one: show all neighbours
        #[command(subcommand)]
        command: Option<NeighCommand>,
    },
    /// Compare with Linux where packets to the edges of each of its prefixes go
    ///
    /// The first and the last address of every prefix in Linux's main table, and those beside it,
    /// are looked up in the maps that the programs read, and in Linux. The daemon does the same all
    /// the time, a little each second. An error where one differs.
    #[command(after_help = "Example:\n  forwarder audit")]
    Audit,
    /// End the forwarder and remove all of its programs and maps
    ///
    /// Linux forwards again, by its own routes. Also removes what a killed daemon has left.
    #[command(after_help = "Example:\n  sudo forwarder unload")]
    Unload,
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  forwarder completions bash | sudo tee /usr/share/bash-completion/completions/forwarder"
    )]
    Completions {
        shell: Shell,
    },
    /// Print the version
    Version,
}

/// Attach to interfaces and forward, until it is ended
///
/// Either all of the interfaces are served or none is touched. Ctrl-C ends the daemon and removes
/// everything; after `kill -9` forwarding goes on for the time of --grace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo forwarder run --iface eth0,eth1
  sudo forwarder run --iface eth0,eth1,eth2 --steer cpus=2-5 --metrics 198.18.0.1:9184
  sudo forwarder run --iface eth0,eth1 --bypass netfilter,tc")]
pub struct RunArgs {
    /// Interfaces to forward between, at least two
    #[arg(long, required = true, value_delimiter = ',', value_name = "A,B[,C...]")]
    pub iface: Vec<String>,
    /// How to attach; `auto` is native, and generic (slow, and said so) where a driver refuses
    #[arg(long, value_enum, default_value_t = ModeArg::Auto)]
    pub mode: ModeArg,
    /// Whose routes to forward by: `kernel` follows Linux's main table; `static` knows only those
    /// of `route add`, and forwards by them whatever Linux has
    #[arg(long, value_enum, default_value_t = RoutesArg::Kernel)]
    pub routes: RoutesArg,
    /// Spread flows over these CPUs (a list like 0-3,6), or leave each packet on its CPU
    #[arg(long, value_name = "off|cpus=LIST", default_value = "off")]
    pub steer: String,
    /// Frames that wait for each CPU of --steer at most
    #[arg(long, value_name = "FRAMES", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=QUEUE_SIZE_MAX))]
    pub queue_size: u32,
    /// Where to serve metrics for Prometheus
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value = "127.0.0.1:9184")]
    pub metrics: String,
    /// Count frames by set of next hops too, and serve that many of them as metrics
    #[arg(long, value_name = "NUMBER", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=i64::from(ROUTE_IDS_MAX)))]
    pub metrics_routes: u32,
    /// IPv4 routes to make room for
    #[arg(long, value_name = "NUMBER", default_value_t = ROUTES4_MAX,
          value_parser = clap::value_parser!(u32).range(1..=ROUTES_LIMIT))]
    pub routes4_max: u32,
    /// IPv6 routes to make room for
    #[arg(long, value_name = "NUMBER", default_value_t = ROUTES6_MAX,
          value_parser = clap::value_parser!(u32).range(1..=ROUTES_LIMIT))]
    pub routes6_max: u32,
    /// Attach even to the interface over which this login comes
    #[arg(long)]
    pub yes: bool,
    /// Attach even to interfaces whose packets may lack checksums (veth with tx offload)
    #[arg(long)]
    pub accept_unfinished_checksums: bool,
    /// Forward although XDP bypasses rules of these kinds that Linux has for packets between the
    /// interfaces: netfilter (nftables, iptables, conntrack), tc (filters, shaping), xfrm (IPsec).
    /// Rules of other kinds refuse the start and, when they come later, stop what they are for
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND[,KIND...]")]
    pub bypass: Vec<BypassArg>,
    /// How long to go on forwarding after the daemon has died
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=GRACE_MAX_S))]
    pub grace: u32,
    /// Group that may use the commands that change nothing, where it exists
    #[arg(long, value_name = "GROUP", default_value = "forwarder")]
    pub group: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoutesArg {
    Kernel,
    Static,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BypassArg {
    Netfilter,
    Tc,
    Xfrm,
}

#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// Add a route; refuse where its prefix has one
    ///
    /// Flows are spread over several next hops by their weights; one that fails gives its flows to
    /// the others, and takes them back later. With `cpu LIST` these CPUs get next hops of their
    /// own, whatever the others have.
    // iproute2's abbreviation, now that there is `append`.
    #[command(alias = "a", after_long_help = ADD_HELP, after_help = ADD_HELP)]
    Add(RouteArgs),
    /// Add a route, in the place of the one that its prefix has
    ///
    /// Next hops that single CPUs have of their own stay; with `cpu LIST` only those of these CPUs
    /// are replaced.
    #[command(after_long_help = REPLACE_HELP, after_help = REPLACE_HELP)]
    Replace(RouteArgs),
    /// Add a next hop to those that a prefix has
    ///
    /// Where the prefix has none it is added, as by `add`. Refused where the next hop is there
    /// already.
    #[command(after_long_help = APPEND_HELP, after_help = APPEND_HELP)]
    Append(RouteArgs),
    /// Remove a route, or one next hop of several
    ///
    /// The prefix alone removes all that it has. With `via`, `dev` or both its next hop must match;
    /// of several, the one that matches is removed. With `cpu LIST` these CPUs lose the next hops
    /// that they have of their own, and follow the others again.
    #[command(
        visible_alias = "delete",
        after_long_help = DEL_HELP,
        after_help = DEL_HELP
    )]
    Del {
        // Not a comment for rustdoc, which takes brackets for links.
        #[arg(
            required = true,
            value_name = "ROUTE",
            help = "PREFIX [cpu LIST] [via ADDRESS] [dev INTERFACE]"
        )]
        words: Vec<String>,
    },
    /// Show routes
    #[command(
        visible_alias = "list",
        alias = "ls",
        after_help = "\
Examples:
  forwarder route show
  forwarder route show root 198.18.0.0/15      this prefix and all below it
  forwarder route show match 198.19.2.7        all prefixes that contain it
  forwarder -j route show dev eth1             by this interface, perhaps among others
  forwarder route show --per-cpu
  forwarder route show --skipped               what is left to Linux, and why"
    )]
    Show {
        /// [root|match|exact] PREFIX, via ADDRESS, dev INTERFACE
        #[arg(value_name = "SELECTOR")]
        words: Vec<String>,
        /// Show what CPUs have of their own as routes, and not as a remark
        #[arg(long)]
        per_cpu: bool,
        /// Show those of Linux's routes alone whose packets are left to it, and why
        #[arg(long)]
        skipped: bool,
    },
    /// Show the route that packets to an address take
    #[command(after_help = "Example:\n  forwarder route get 198.19.2.7")]
    Get {
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Remove all routes that match
    #[command(after_help = "\
Examples:
  sudo forwarder route flush dev eth1
  sudo forwarder route flush root 198.19.0.0/16
  sudo forwarder route flush all")]
    Flush {
        /// all, [root|match|exact] PREFIX, via ADDRESS, dev INTERFACE
        #[arg(value_name = "SELECTOR")]
        words: Vec<String>,
    },
    /// Add all routes of a file, or none
    ///
    /// A line has a route as `route add` takes it, and may begin with `route add` as in files for
    /// `ip -batch`. Lines that begin with `nexthop` go on with the route before them. Empty lines,
    /// and what follows a `#`, are skipped.
    #[command(after_long_help = "\
Examples:
  sudo forwarder route load routes.txt --xdp-only
  forwarder route show --per-cpu | sed s/eth1/eth2/ | sudo forwarder route load - --replace --xdp-only")]
    Load {
        /// The file, or - for standard input
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Replace the routes that prefixes have already
        #[arg(long)]
        replace: bool,
        /// Let these be all routes there are: what is not in the file goes. Every packet takes its
        /// way through the old table or through the new one
        #[arg(long, conflicts_with = "replace")]
        flush: bool,
        /// Keep them from Linux, which has `ip -batch` for files; needed where Linux's routes are
        /// followed
        #[arg(long)]
        xdp_only: bool,
    },
}

#[derive(Debug, Args)]
pub struct RouteArgs {
    // Not a comment for rustdoc, which takes brackets for links.
    #[arg(
        required = true,
        value_name = "ROUTE",
        help = "PREFIX [cpu LIST] [via [inet6] ADDRESS] [dev INTERFACE] [weight NUMBER]; several next hops: PREFIX [cpu LIST] nexthop via … nexthop via …"
    )]
    pub words: Vec<String>,
    /// Wait until it forwards by all of its next hops; an error when it does not in this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=WAIT_MAX_S))]
    pub wait: Option<u64>,
    /// Keep it from Linux: it is forwarded by in XDP alone, and goes with the daemon
    #[arg(long)]
    pub xdp_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum NeighCommand {
    /// Show the neighbours that routes lead over
    #[command(
        visible_alias = "list",
        alias = "ls",
        after_help = "Example:\n  forwarder -4 neigh show"
    )]
    Show,
}

const REPLACE_HELP: &str = "\
Examples:
  sudo forwarder route replace 198.19.2.0/24 via 198.18.2.3 dev eth1
  sudo forwarder route replace default via 2001:db8:2::2 dev eth1 --wait 3
  sudo forwarder route replace 198.19.2.0/24 cpu 0-1 via 198.18.1.2 dev eth0";

const APPEND_HELP: &str = "\
Examples:
  sudo forwarder route append 198.19.2.0/24 via 198.18.1.2 dev eth0
  sudo forwarder route append 198.19.2.0/24 via 198.18.1.3 dev eth0 weight 4";

const DEL_HELP: &str = "\
Examples:
  sudo forwarder route del 198.19.2.0/24
  sudo forwarder route del 2001:db8:102::/48 via 2001:db8:2::2
  sudo forwarder route del 198.19.2.0/24 cpu 0-1";

const ADD_HELP: &str = "\
Examples:
  sudo forwarder route add 198.19.2.0/24 via 198.18.2.2 dev eth1
  sudo forwarder route add 2001:db8:102::/48 via fe80::2 dev eth1 --wait 3
  sudo forwarder route add 198.19.3.0/24 via inet6 2001:db8:2::2     an IPv6 gateway (RFC 8950)
  sudo forwarder route add 198.19.4.0/24 dev eth1                    connected: no gateway
  sudo forwarder route add default via 198.18.2.2
  sudo forwarder route add 198.19.5.0/24 nexthop via 198.18.2.2 weight 2 nexthop via 198.18.1.2
  sudo forwarder route add 198.19.6.0/24 via 198.18.2.2 --xdp-only   kept from Linux
  sudo forwarder route add 198.19.7.0/24 cpu 0-1 via 198.18.2.2      these CPUs alone";

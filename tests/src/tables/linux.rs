//! A table in Linux's own FIB, for `bpf_fib_lookup`, in the network namespace of this thread.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use forwarder::prefix::Family;
use forwarder_common::abi::{ROUTE_IDS_FIRST, RouteId};
use nix::net::if_::if_nametoindex;

use super::{NEXT_HOPS, Table};
use crate::{frame::mac_text, programs::mac};

const INTERFACE: &str = "fib0";

/// An address that comes and goes: without a local table, which the first address makes, Linux
/// takes every next hop for a broadcast address.
const PASSING: &str = "198.18.255.1/32";

/// Makes an interface that forwards, with neighbours for all next hops but without an address, so
/// that the table has no route but those it is given. Gives back its index.
pub fn prepare() -> Result<u32> {
    ip(&format!(
        "link add {INTERFACE} type veth peer name fib1\n\
         link set {INTERFACE} addrgenmode none\n\
         link set fib1 addrgenmode none\n\
         link set {INTERFACE} up\n\
         link set fib1 up\n\
         address add {PASSING} dev {INTERFACE}\n\
         address del {PASSING} dev {INTERFACE}\n"
    ))?;
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        fs::write(format!("/proc/sys/net/{key}"), "1").with_context(|| format!("set {key}"))?;
    }
    let mut batch = String::new();
    for route in ROUTE_IDS_FIRST..ROUTE_IDS_FIRST + NEXT_HOPS {
        for family in [Family::Inet, Family::Inet6] {
            let (gateway, mac) = (gateway(family, route), mac_text(mac(route)));
            writeln!(batch, "neigh add {gateway} lladdr {mac} dev {INTERFACE} nud permanent")?;
        }
    }
    ip(&batch)?;
    Ok(if_nametoindex(INTERFACE)?)
}

pub fn fill(table: &Table) -> Result<()> {
    let mut batch = String::with_capacity(table.routes.len() * 64);
    for route in &table.routes {
        let prefix = route.net.prefix(table.family);
        let gateway = gateway(table.family, route.id);
        writeln!(batch, "route add {prefix} via {gateway} dev {INTERFACE} onlink")?;
    }
    ip(&batch)
}

fn gateway(family: Family, route: RouteId) -> String {
    match family {
        Family::Inet => format!("198.18.{}.{}", route >> 8, route & 0xff),
        Family::Inet6 => format!("fe80::{route:x}"),
    }
}

fn ip(batch: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ip.spawn().context("start ip")?;
    let mut input = child.stdin.take().context("a pipe to ip")?;
    let written = input.write_all(batch.as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip -batch: {}", said.lines().next().unwrap_or_default());
    written.context("write to ip")
}

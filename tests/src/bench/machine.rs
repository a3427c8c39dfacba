//! Where it was measured.

use std::fs;

use serde_json::{Value, json};

/// A load beside us above which figures are not to be trusted.
const QUIET: f64 = 0.3;

pub(crate) fn describe() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    let mitigations = read("/sys/devices/system/cpu/vulnerabilities/spectre_v2");
    json!({
        "cpu": field("model name"),
        "cpus": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "virtual": cpuinfo.contains(" hypervisor"),
        "cache": field("cache size"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "jit": read("/proc/sys/net/core/bpf_jit_enable").trim(),
        "spectre_v2": mitigations.trim(),
        "load": load,
        "busy": load.is_none_or(|load| load > QUIET),
    })
}

pub(crate) fn line(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    let kind = if machine["virtual"] == true { ", virtual" } else { "" };
    format!("{} × {}{kind}, Linux {}", machine["cpus"], text("cpu"), text("kernel"))
}

pub(crate) fn print(machine: &Value) {
    println!("{}; load before the run {}", line(machine), machine["load"]);
    if machine["busy"] == true {
        println!("!!! the machine is busy: these figures are preliminary");
    }
}

//! What a daemon has in the kernel and in the file system, and what of it is left when it has ended.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use aya::{
    maps::{Map, MapData, MapInfo, PerCpuArray, loaded_maps},
    programs::{loaded_links, loaded_programs},
};
use forwarder_common::abi::{InterfaceCounters, name};
use serde_json::Value;

use crate::{daemon::Forwarder, host::Host, wait::wait_until};

/// Below it each forwarder has a folder of pins, by its name.
const PINS: &str = "/sys/fs/bpf/forwarder";
/// The kernel frees some things a moment after the last reference to them is gone.
const FREED: Duration = Duration::from_secs(5);

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    pub generic: bool,
    pub program: u32,
}

/// Ids of all that one daemon has in the kernel: other tests have theirs at the same time.
#[derive(Clone, Debug)]
pub struct Footprint {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

/// The XDP program of an interface, as `ip link` shows it.
pub fn xdp(host: &Host, interface: &str) -> Result<Option<Attached>> {
    let text = host.ip(&format!("-j link show dev {interface}"))?;
    let links: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let xdp = &links[0]["xdp"];
    if xdp.is_null() {
        return Ok(None);
    }
    let number = |value: &Value| value.as_u64().with_context(|| format!("no number in {xdp}"));
    let (mode, program) = (number(&xdp["mode"])?, number(&xdp["prog"]["id"])?);
    // `XDP_ATTACHED_DRV` and `XDP_ATTACHED_SKB`
    ensure!(mode == 1 || mode == 2, "{xdp} is neither native nor generic");
    Ok(Some(Attached { generic: mode == 2, program: program.try_into()? }))
}

/// Files of a forwarder that are there: its pins, and what is in its run directory.
pub fn files(forwarder: &Forwarder) -> Vec<PathBuf> {
    let mut found = Vec::new();
    list(forwarder.run_dir(), &mut found);
    if let Some(name) = forwarder.name() {
        let pins = Path::new(PINS).join(name);
        found.extend(pins.exists().then_some(pins.clone()));
        list(&pins, &mut found);
    }
    found
}

impl Footprint {
    /// Of the daemon whose program is attached to this interface.
    pub fn of(host: &Host, interface: &str) -> Result<Self> {
        let attached = xdp(host, interface)?;
        let ingress = attached.with_context(|| format!("no program on {interface}"))?.program;
        // Another test's program may be gone before its maps can be asked for.
        let programs: Vec<(u32, BTreeSet<u32>)> = loaded_programs()
            .flatten()
            .filter_map(|info| Some((info.id(), info.map_ids().ok()??.into_iter().collect())))
            .collect();
        let (_, reached) = programs
            .iter()
            .find(|(id, _)| *id == ingress)
            .with_context(|| format!("program {ingress} is not loaded"))?;
        // The worker, and the programs at tracepoints, are over maps of the same daemon: each over
        // one that another of them knows.
        let mut maps = reached.clone();
        let ours = loop {
            let ours = programs.iter().filter(|(_, of)| !of.is_disjoint(&maps));
            let all: BTreeSet<u32> = ours.clone().flat_map(|(_, of)| of).copied().collect();
            if all == maps {
                break ours.map(|(id, _)| *id);
            }
            maps = all;
        };
        let programs: BTreeSet<u32> = ours.collect();
        let links = loaded_links().flatten().filter(|link| programs.contains(&link.program_id()));
        let links = links.map(|link| link.id()).collect();
        Ok(Self { programs, maps, links })
    }

    /// How many programs and links.
    pub fn size(&self) -> (usize, usize) {
        (self.programs.len(), self.links.len())
    }

    /// Waits until the kernel has freed all of it; an error lists what stays.
    pub fn gone(&self) -> Result<()> {
        let left = || self.left().map(|left| left.is_empty().then_some(()));
        wait_until("the kernel to free everything", FREED, left)
            .with_context(|| format!("left: {:?}", self.left()))
    }

    /// What is there now, by name.
    pub fn left(&self) -> Result<Vec<String>> {
        let programs = loaded_programs().flatten().map(|info| info.id());
        let maps = loaded_maps().flatten().map(|info| info.id());
        let links = loaded_links().flatten().map(|info| info.id());
        let mut left = named("program", programs, &self.programs);
        left.extend(named("map", maps, &self.maps));
        left.extend(named("link", links, &self.links));
        left.extend(self.queue_threads()?);
        Ok(left)
    }

    /// Names of the kernel threads that work for its CPU map.
    pub fn queue_threads(&self) -> Result<Vec<String>> {
        let mut threads = Vec::new();
        for process in fs::read_dir("/proc")? {
            // A process may end meanwhile.
            let Ok(name) = fs::read_to_string(process?.path().join("comm")) else { continue };
            let map = name.trim_end().strip_prefix("cpumap/").and_then(|name| {
                let (_, map) = name.split_once("/map:")?;
                map.parse().ok()
            });
            if map.is_some_and(|map: u32| self.maps.contains(&map)) {
                threads.push(name.trim_end().to_owned());
            }
        }
        Ok(threads)
    }

    /// Frames in a slot of the interface's counters, over all CPUs: without a daemon nobody else
    /// tells. Interfaces are numbered from 1, in the order in which they were named.
    pub fn packets(&self, interface: u32, slot: u32) -> Result<u64> {
        self.packets_in(name::COUNTERS, interface, slot)
    }

    /// Likewise of those that were steered, where they were steered to.
    pub fn worker_packets(&self, interface: u32, slot: u32) -> Result<u64> {
        self.packets_in(name::WORKER_COUNTERS, interface, slot)
    }

    fn packets_in(&self, map: &str, interface: u32, slot: u32) -> Result<u64> {
        let map = Map::PerCpuArray(self.map(map)?);
        let counters: PerCpuArray<_, InterfaceCounters> = map.try_into()?;
        let copies = counters.get(&interface, 0)?;
        Ok(copies.iter().map(|InterfaceCounters(slots)| slots[slot as usize].packets).sum())
    }

    fn map(&self, name: &str) -> Result<MapData> {
        let is_it =
            |info: &MapInfo| self.maps.contains(&info.id()) && info.name_as_str() == Some(name);
        let info = loaded_maps().flatten().find(is_it);
        Ok(MapData::from_id(info.with_context(|| format!("its map {name} is gone"))?.id())?)
    }
}

fn named(kind: &str, there: impl Iterator<Item = u32>, ours: &BTreeSet<u32>) -> Vec<String> {
    there.filter(|id| ours.contains(id)).map(|id| format!("{kind} {id}")).collect()
}

fn list(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        list(&path, found);
        found.push(path);
    }
}

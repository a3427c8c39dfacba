//! Programs and maps in the kernel: the only code that names aya.

mod attach;
mod bypassed;
mod counters;
mod grace;
mod memory;
mod object;
mod pins;
mod remains;
mod tables;
#[cfg(feature = "trace")]
mod trace;
mod tracepoints;

use std::io;

use aya::Ebpf;
use forwarder_common::abi::{Interface, name};

pub use attach::{AttachError, Attached, AttachedMode};
pub use bypassed::bypassed;
pub use counters::{Reading, Readings};
pub use grace::Grace;
pub use memory::{Memory, trim_heap};
pub use object::{LoadError, Options};
pub use pins::{Leftovers, Pins};
pub use remains::Remains;
pub use tables::{Tables, fib_memory};

use self::{attach::Links, counters::Counters, tables::Devices, tracepoints::Tracepoints};
use crate::{
    config::{Mode, Steering},
    snapshot::Count,
    tracepoints::Missing,
};

/// The loaded programs, their maps, and the links that attach them.
pub struct Dataplane {
    /// Dropped first: what is attached must not outlive its daemon's decision to detach.
    links: Links,
    /// After them: what is on its way when a program is detached is counted still.
    tracepoints: Tracepoints,
    devices: Devices,
    counters: Counters,
    ebpf: Ebpf,
}

impl Dataplane {
    /// Loads the programs and fills the maps that are there from the start. Nothing is attached.
    pub fn load(object: &[u8], options: &Options) -> Result<(Self, Tables), LoadError> {
        let (mut ebpf, tracepoints) = object::load(object, options)?;
        let mut tables = Tables::take(&mut ebpf, options)?;
        let programs = [
            object::program_id(&mut ebpf, name::INGRESS)?,
            object::program_id(&mut ebpf, name::WORKER)?,
        ];
        let mut devices = Devices::take(&mut ebpf, programs)?;
        if let Steering::Cpus(cpus) = &options.steering {
            let worker = object::worker(&mut ebpf)?;
            devices.set_workers(cpus, options.queue_size, worker)?;
            tables.set_steering(cpus)?;
        }
        let counters = Counters::take(&mut ebpf, options, devices.workers())?;
        #[cfg(feature = "trace")]
        trace::follow(&mut ebpf);
        let this = Self { links: Links::default(), tracepoints, devices, counters, ebpf };
        Ok((this, tables))
    }

    /// Attaches the program to all of these interfaces or, after an error, to none.
    ///
    /// Links are pinned below `pins`, so that they outlive the process; without, they do not. The
    /// tracepoints come first: they are to miss nothing.
    pub fn attach(
        &mut self,
        interfaces: &[(u32, String)],
        mode: Mode,
        pins: Option<&Pins>,
    ) -> Result<Vec<Attached>, AttachError> {
        self.tracepoints.attach_all(&mut self.ebpf, pins);
        let program = object::ingress(&mut self.ebpf);
        let attached = self.links.attach_all(program, interfaces, mode, pins);
        if attached.is_err() {
            self.tracepoints.detach_all();
        }
        attached
    }

    /// Tracepoints that are not followed.
    pub fn missing_tracepoints(&self) -> &[Missing] {
        self.tracepoints.missing()
    }

    /// Makes an interface known to the programs, as ingress and as egress.
    pub fn set_interface(&mut self, ifindex: u32, interface: Interface) -> io::Result<()> {
        self.devices.set(ifindex, interface)
    }

    /// Detaches from an interface that is gone, or has moved to another namespace.
    pub fn remove_interface(&mut self, ifindex: u32) {
        self.links.detach(ifindex);
        self.devices.remove(ifindex);
    }

    /// All counters of interfaces, by their slots, and those of queues.
    pub fn counters(&self, slots: &[u32]) -> io::Result<Readings> {
        self.counters.read(slots)
    }

    /// Frames that left along a route, by CPU.
    pub fn route_counters(&self, route: u32) -> io::Result<Vec<Count>> {
        self.counters.route(route)
    }

    /// Detaches everywhere, then empties the maps that hold devices and CPUs.
    pub fn unload(mut self) -> Remains {
        let mut programs = self.links.detach_all();
        programs.extend(self.tracepoints.detach_all());
        self.devices.clear();
        Remains { programs, cpu_maps: vec![self.devices.cpu_map_id()] }
    }
}

//! The programs at the kernel's tracepoints: loaded where the kernel has what they need, attached
//! before the XDP programs and detached after them.

use std::{fs, os::unix::fs::MetadataExt as _};

use aya::{
    Btf, Ebpf, EbpfLoader,
    programs::{BtfTracePoint, ProgramError, links::FdLink},
};
use forwarder_common::abi::name;

use super::{Pins, attach::Link};
use crate::tracepoints::{Missing, Plan, Tracepoint};

/// The kernel's types, all of them.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Its inode is the number that the kernel gives the namespace (`struct ns_common`).
const NAMESPACE: &str = "/proc/self/ns/net";

/// Named tracepoints that are followed, and those that are not.
#[derive(Debug, Default)]
pub(super) struct Tracepoints {
    links: Vec<Link>,
    missing: Vec<Missing>,
}

/// What is known before the object is loaded.
pub(super) struct Constants {
    plan: Plan,
    namespace: u32,
}

impl Constants {
    /// Of this kernel, and of this process's network namespace.
    pub(super) fn here() -> Self {
        let unreadable = |error| format!("{BTF} cannot be read: {error}");
        let plan = match fs::read(BTF) {
            Ok(bytes) => Plan::new(&bytes),
            Err(error) => Plan::nothing(&unreadable(error)),
        };
        match fs::metadata(NAMESPACE).map(|namespace| u32::try_from(namespace.ino())) {
            Ok(Ok(namespace)) => Self { plan, namespace },
            _ => Self { plan: Plan::nothing(&format!("{NAMESPACE} has no number")), namespace: 0 },
        }
    }

    pub(super) fn set<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        let offsets = &self.plan.offsets;
        for (name, value) in [
            (name::NAMESPACE, &self.namespace),
            (name::NET_DEVICE_IFINDEX, &offsets.net_device_ifindex),
            (name::NET_DEVICE_NET, &offsets.net_device_net),
            (name::NET_INUM, &offsets.net_inum),
            (name::BPF_PROG_AUX, &offsets.bpf_prog_aux),
            (name::BPF_PROG_AUX_ID, &offsets.bpf_prog_aux_id),
        ] {
            loader.override_global(name, value, true);
        }
    }
}

impl Tracepoints {
    /// Loads the programs. What the kernel refuses is missing, and not an error: frames are
    /// forwarded all the same.
    pub(super) fn load(ebpf: &mut Ebpf, btf: Option<&Btf>, constants: Constants) -> Self {
        let mut this = Self { links: Vec::new(), missing: constants.plan.missing };
        for tracepoint in Tracepoint::ALL {
            if this.is_missing(tracepoint) {
                continue;
            }
            let Some(btf) = btf else {
                this.miss(tracepoint, "the kernel's BTF cannot be read".to_owned());
                continue;
            };
            let loaded = program(ebpf, tracepoint).and_then(|it| it.load(tracepoint.name(), btf));
            if let Err(error) = loaded {
                this.miss(tracepoint, format!("the kernel refuses the program: {error}"));
            }
        }
        this
    }

    /// Attaches all that are loaded. Pinned, they outlive the process as the others do.
    pub(super) fn attach_all(&mut self, ebpf: &mut Ebpf, pins: Option<&Pins>) {
        for tracepoint in Tracepoint::ALL {
            if self.is_missing(tracepoint) {
                continue;
            }
            match attach(ebpf, tracepoint, pins) {
                Ok(link) => self.links.push(link),
                Err(why) => self.miss(tracepoint, why),
            }
        }
    }

    /// Gives back the ids of the programs, which end a moment later.
    pub(super) fn detach_all(&mut self) -> Vec<u32> {
        self.links.drain(..).filter_map(Link::detach).collect()
    }

    pub(super) fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_missing(&self, tracepoint: Tracepoint) -> bool {
        self.missing.iter().any(|it| it.tracepoint == tracepoint)
    }

    fn miss(&mut self, tracepoint: Tracepoint, why: String) {
        self.missing.push(Missing { tracepoint, why });
    }
}

fn attach(ebpf: &mut Ebpf, tracepoint: Tracepoint, pins: Option<&Pins>) -> Result<Link, String> {
    let refused = |error| format!("the kernel does not attach the program: {error}");
    let program = program(ebpf, tracepoint).map_err(refused)?;
    let id = program.attach().map_err(refused)?;
    let link = FdLink::from(program.take_link(id).map_err(refused)?);
    Link::new(tracepoint.name(), link, pins)
        .map_err(|error| format!("cannot pin its link: {error}"))
}

fn program(ebpf: &mut Ebpf, tracepoint: Tracepoint) -> Result<&mut BtfTracePoint, ProgramError> {
    let not_there = ProgramError::NotLoaded;
    ebpf.program_mut(tracepoint.name()).ok_or(not_there)?.try_into()
}

//! Loading: capacities and constants go in, verified programs come out.

use std::time::Duration;

use aya::{
    Btf, Ebpf, EbpfError, EbpfLoader,
    maps::MapError,
    programs::{ProgramError, ProgramFd, Xdp},
};
use forwarder_common::{
    abi::{self, CPUS_MAX, name},
    fib,
};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, read::elf::ElfFile64,
};

use super::tracepoints::{Constants, Tracepoints};
use crate::config::Steering;

/// Bytes of the FIB for each route that there may be: twice what a table of a full Internet takes,
/// so that a table can be built beside the one it is to replace.
const FIB_BYTES4: u64 = 8;
const FIB_BYTES6: u64 = 32;
/// For tables that are small, but scattered: a lone host takes 72 bytes in IPv4, 430 in IPv6.
const FIB_BYTES_MIN: u64 = 4 << 20;
/// What one element of a map may have, and the verifier believes (BPF_MAX_VAR_OFF).
pub(super) const FIB_BYTES_MAX: u64 = 1 << 28;

/// What is decided at load, for as long as the programs live.
#[derive(Clone, Debug)]
pub struct Options {
    pub routes4_max: u32,
    pub routes6_max: u32,
    pub steering: Steering,
    /// Frames that a CPU's queue holds.
    pub queue_size: u32,
    /// Count frames by route: costs a little on each.
    pub count_routes: bool,
    /// CPUs that the kernel may ever have, ascending.
    pub cpus_possible: Vec<u32>,
    /// Makes flow hashes differ from those of other machines.
    pub hash_seed: u64,
    /// How long forwarding goes on after the last sign of life.
    pub grace: Duration,
}

impl Options {
    /// Units of memory for the nodes of the FIB: a power of two.
    pub(super) fn fib_units(&self) -> u32 {
        let routes =
            u64::from(self.routes4_max) * FIB_BYTES4 + u64::from(self.routes6_max) * FIB_BYTES6;
        let bytes = routes.next_power_of_two().clamp(FIB_BYTES_MIN, FIB_BYTES_MAX);
        u32::try_from(bytes / u64::from(fib::UNIT * 4)).unwrap_or(abi::FIB_UNITS)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the kernel refuses the programs or their maps")]
    Object(#[from] EbpfError),
    #[error("the kernel's verifier refuses the program '{name}': {error}")]
    Program { name: &'static str, error: ProgramError },
    #[error("the eBPF object has no '{0}': it is not of this version")]
    Missing(&'static str),
    #[error("cannot use a map")]
    Map(#[from] MapError),
    #[error("cannot fill a map")]
    Fill(#[from] std::io::Error),
    #[error("cannot make a queue for CPU {cpu}: {error}")]
    Worker { cpu: u32, error: std::io::Error },
}

/// With the programs for tracepoints, as far as the kernel has what they need.
pub(super) fn load(object: &[u8], options: &Options) -> Result<(Ebpf, Tracepoints), LoadError> {
    let steer = u32::from(options.steering != Steering::Off);
    let count_routes = u32::from(options.count_routes);
    let cpus_possible = u32::try_from(options.cpus_possible.len()).unwrap_or(CPUS_MAX);
    let units = options.fib_units();
    let object = with_value_size(object, name::FIB, fib::words(units) * 4)?;
    let constants = Constants::here();
    let btf = Btf::from_sys_fs().ok();
    let mut loader = EbpfLoader::new();
    constants.set(&mut loader);
    let mut ebpf = loader
        .btf(btf.as_ref())
        .map_max_entries(name::CPUS, cpus_possible)
        .map_max_entries(name::ENQUEUED, cpu_numbers(&options.cpus_possible))
        .override_global(name::STEER, &steer, true)
        .override_global(name::COUNT_ROUTES, &count_routes, true)
        .override_global(name::HASH_SEED, &options.hash_seed, true)
        .override_global(name::FIB_UNITS_MASK, &(units - 1), true)
        .load(&object)?;
    // The worker too where nobody is steered: what is refused is to be seen at the first start.
    for name in [name::INGRESS, name::WORKER] {
        let program = program(&mut ebpf, name)?;
        program.load().map_err(|error| LoadError::Program { name, error })?;
    }
    let tracepoints = Tracepoints::load(&mut ebpf, btf.as_ref(), constants);
    Ok((ebpf, tracepoints))
}

/// One more than the greatest.
fn cpu_numbers(cpus: &[u32]) -> u32 {
    cpus.iter().max().map_or(1, |last| last + 1)
}

/// The object with another size of a map's elements: aya lets only their number be chosen.
///
/// Maps are described in the object as `struct bpf_map_def`: five words, the third is the size.
fn with_value_size(object: &[u8], map: &'static str, bytes: u32) -> Result<Vec<u8>, LoadError> {
    let missing = || LoadError::Missing(map);
    let elf = ElfFile64::<Endianness>::parse(object).map_err(|_| missing())?;
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(map)).ok_or_else(missing)?;
    let section = symbol.section_index().ok_or_else(missing)?;
    let section = elf.section_by_index(section).map_err(|_| missing())?;
    let (start, _) = section.file_range().ok_or_else(missing)?;
    let at = usize::try_from(start + symbol.address() + 8).map_err(|_| missing())?;
    let mut object = object.to_vec();
    object.get_mut(at..at + 4).ok_or_else(missing)?.copy_from_slice(&bytes.to_ne_bytes());
    Ok(object)
}

/// The program that is attached to interfaces; `load` has seen that it is there.
pub(super) fn ingress(ebpf: &mut Ebpf) -> Option<&mut Xdp> {
    program(ebpf, name::INGRESS).ok()
}

pub(super) fn worker(ebpf: &mut Ebpf) -> Result<&ProgramFd, LoadError> {
    let failed = |error| LoadError::Program { name: name::WORKER, error };
    program(ebpf, name::WORKER)?.fd().map_err(failed)
}

/// What the kernel calls a loaded program.
pub(super) fn program_id(ebpf: &mut Ebpf, name: &'static str) -> Result<u32, LoadError> {
    let failed = |error| LoadError::Program { name, error };
    Ok(program(ebpf, name)?.info().map_err(failed)?.id())
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    program.try_into().map_err(|error| LoadError::Program { name, error })
}

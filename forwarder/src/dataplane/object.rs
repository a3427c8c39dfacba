//! Loading: capacities and constants go in, verified programs come out.

use std::time::Duration;

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::MapError,
    programs::{ProgramError, ProgramFd, Xdp},
};
use forwarder_common::abi::{CPUS_MAX, LOCALS_MAX, name};

use crate::config::Steering;

/// Neighbours in connected prefixes that have FIB entries of their own.
const HOSTS_MAX: u32 = 1 << 16;

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

pub(super) fn load(object: &[u8], options: &Options) -> Result<Ebpf, LoadError> {
    let steer = u32::from(options.steering != Steering::Off);
    let count_routes = u32::from(options.count_routes);
    let cpus_possible = u32::try_from(options.cpus_possible.len()).unwrap_or(CPUS_MAX);
    // Beside the routes there are local addresses and neighbours, which nobody counts for a user.
    let fib = |routes: u32| routes.saturating_add(LOCALS_MAX + HOSTS_MAX);
    let mut ebpf = EbpfLoader::new()
        .map_max_entries(name::FIB4, fib(options.routes4_max))
        .map_max_entries(name::FIB6, fib(options.routes6_max))
        .map_max_entries(name::CPUS, cpus_possible)
        .override_global(name::STEER, &steer, true)
        .override_global(name::COUNT_ROUTES, &count_routes, true)
        .override_global(name::HASH_SEED, &options.hash_seed, true)
        .load(object)?;
    // The worker too where nobody is steered: what is refused is to be seen at the first start.
    for name in [name::INGRESS, name::WORKER] {
        let program = program(&mut ebpf, name)?;
        program.load().map_err(|error| LoadError::Program { name, error })?;
    }
    Ok(ebpf)
}

/// The program that is attached to interfaces; `load` has seen that it is there.
pub(super) fn ingress(ebpf: &mut Ebpf) -> Option<&mut Xdp> {
    program(ebpf, name::INGRESS).ok()
}

pub(super) fn worker(ebpf: &mut Ebpf) -> Result<&ProgramFd, LoadError> {
    let failed = |error| LoadError::Program { name: name::WORKER, error };
    program(ebpf, name::WORKER)?.fd().map_err(failed)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    program.try_into().map_err(|error| LoadError::Program { name, error })
}

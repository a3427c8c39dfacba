//! BPF programs of others, on hooks that aya has no way to attach a program of two instructions to.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// A program on a hook; it is gone when this is dropped.
#[derive(Debug)]
pub struct Hook {
    _link: OwnedFd,
}

// `linux/bpf.h`
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_NETFILTER: u32 = 32;
const BPF_NETFILTER: u32 = 45;
const BPF_TCX_INGRESS: u32 = 46;
const TCX_NEXT: i32 = -1;
const NF_ACCEPT: i32 = 1;
const NF_INET_FORWARD: u32 = 2;
const NFPROTO_IPV4: u32 = 2;

impl Hook {
    /// At tc's ingress of an interface, in the network namespace of the calling thread.
    pub fn tcx(ifindex: u32) -> io::Result<Self> {
        let program = load(BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, TCX_NEXT)?;
        Self::link(&program, ifindex, BPF_TCX_INGRESS, [0; 4])
    }

    /// At netfilter's hook `forward` of IPv4, likewise.
    pub fn netfilter() -> io::Result<Self> {
        let program = load(BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER, NF_ACCEPT)?;
        Self::link(&program, 0, BPF_NETFILTER, [NFPROTO_IPV4, NF_INET_FORWARD, 0, 0])
    }

    fn link(program: &OwnedFd, target: u32, hook: u32, rest: [u32; 4]) -> io::Result<Self> {
        #[repr(C)]
        struct Attributes {
            program: i32,
            target: u32,
            hook: u32,
            flags: u32,
            rest: [u32; 4],
        }
        let program = program.as_raw_fd();
        let attributes = Attributes { program, target, hook, flags: 0, rest };
        Ok(Self { _link: bpf(BPF_LINK_CREATE, &attributes)? })
    }
}

/// A program that returns a number.
fn load(kind: u32, hook: u32, verdict: i32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u64; 2],
        version_and_flags: u64,
        name: [u8; 16],
        ifindex: u32,
        hook: u32,
    }
    // r0 = verdict; exit
    let instructions = [0xb7 | u64::from(verdict.cast_unsigned()) << 32, 0x95];
    let license = c"GPL";
    bpf(
        BPF_PROG_LOAD,
        &Attributes {
            kind,
            count: 2,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log: [0; 2],
            version_and_flags: 0,
            name: [0; 16],
            ifindex: 0,
            hook,
        },
    )
}

fn bpf<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: both commands only read the attributes, and what these point to, all of which lives
    // until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match RawFd::try_from(result) {
        // SAFETY: both commands give back a new descriptor, which nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

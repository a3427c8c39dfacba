//! Somebody else's XDP program: four instructions that send every frame out of one interface. It
//! is loaded without any loader, so that it has nothing in common with ours.

use std::{
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result};
use aya_obj::generated::{
    bpf_attach_type::BPF_XDP,
    bpf_attr,
    bpf_cmd::{self, BPF_LINK_CREATE, BPF_PROG_LOAD},
    bpf_prog_type::BPF_PROG_TYPE_XDP,
};

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const REDIRECT: u32 = 23;

/// Attached until it is dropped.
#[derive(Debug)]
pub struct Foreign {
    _link: OwnedFd,
    _program: OwnedFd,
}

impl Foreign {
    /// Sends all that comes in by one interface out of another, by their indexes in this thread's
    /// namespace: see [`crate::host::Host::run`].
    pub fn redirect(from: u32, to: u32, generic: bool) -> Result<Self> {
        // r1 = to; r2 = 0; call bpf_redirect; exit. An instruction is an operation, its registers,
        // an offset and a number (`struct bpf_insn`).
        let instruction = |operation: u64, register: u64, number: u32| {
            operation | register << 8 | u64::from(number) << 32
        };
        let instructions = [
            instruction(0xb4, 1, to),
            instruction(0xb4, 2, 0),
            instruction(0x85, 0, REDIRECT),
            instruction(0x95, 0, 0),
        ];
        // SAFETY: zeros are a value of each of its members.
        let mut load: bpf_attr = unsafe { mem::zeroed() };
        // SAFETY: all of the union was set.
        let program = unsafe { &mut load.__bindgen_anon_3 };
        program.prog_type = BPF_PROG_TYPE_XDP as u32;
        program.insn_cnt = u32::try_from(instructions.len())?;
        program.insns = instructions.as_ptr().addr() as u64;
        program.license = c"MIT".as_ptr().addr() as u64;
        let program = bpf(BPF_PROG_LOAD, &load).context("load a foreign program")?;

        // SAFETY: as above.
        let mut attach: bpf_attr = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let link = unsafe { &mut attach.link_create };
        link.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
        link.__bindgen_anon_2.target_ifindex = from;
        link.attach_type = BPF_XDP as u32;
        link.flags = if generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE };
        let link = bpf(BPF_LINK_CREATE, &attach).context("attach a foreign program")?;
        Ok(Self { _link: link, _program: program })
    }
}

fn bpf(command: bpf_cmd, attributes: &bpf_attr) -> io::Result<OwnedFd> {
    let size = size_of::<bpf_attr>();
    // SAFETY: the attributes, and what they point to, outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command as u32, attributes, size) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: both commands give a descriptor to the caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

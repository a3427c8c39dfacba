//! What `ethtool -K` does, without ethtool: the interface's offloads, by the old ioctl.

use std::{io, os::fd::AsRawFd};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// `tx`: leaves checksums to hardware, which on veth means: unfinished.
    TxChecksum,
    /// `txvlan`: leaves VLAN tags to hardware, which on veth means: beside the frame.
    TxVlan,
    /// `gro`: on veth it switches on NAPI, without which nothing can be redirected to the peer.
    Gro,
}

/// Commands of the ioctl (`linux/ethtool.h`).
mod command {
    pub(super) const SET_TX_CHECKSUM: u32 = 0x17;
    pub(super) const GET_FLAGS: u32 = 0x25;
    pub(super) const SET_FLAGS: u32 = 0x26;
    pub(super) const SET_GRO: u32 = 0x2c;
}

/// One of those that `GET_FLAGS` and `SET_FLAGS` speak of.
const FLAG_TX_VLAN: u32 = 1 << 7;

/// Switches one offload of an interface of this thread's namespace.
pub fn set(interface: &str, offload: Offload, on: bool) -> Result<()> {
    let done = match offload {
        Offload::TxChecksum => ethtool(interface, command::SET_TX_CHECKSUM, on.into()),
        Offload::Gro => ethtool(interface, command::SET_GRO, on.into()),
        Offload::TxVlan => ethtool(interface, command::GET_FLAGS, 0).and_then(|flags| {
            let others = flags & !FLAG_TX_VLAN;
            let flags = if on { others | FLAG_TX_VLAN } else { others };
            ethtool(interface, command::SET_FLAGS, flags)
        }),
    };
    done.map(drop).with_context(|| format!("set {offload:?} of {interface} to {on}"))
}

/// Gives back the value that the kernel has left in place of `data`.
fn ethtool(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut value = Value { command, data };
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut value).cast() },
    };
    // SAFETY: the request and the value that it points to outlive the call, and have the layout
    // that `SIOCETHTOOL` and all of our commands expect.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}

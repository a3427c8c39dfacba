//! Why a program could not be attached, from the kernel's error number and what is known of the
//! interface.

use std::io;

use super::interface::Facts;
use crate::netlink::{Offloads, Queues};

/// What every driver takes.
const MTU_SAFE: u32 = 1500;
/// Drivers that want as many queues again for XDP as they use.
const TWICE_THE_QUEUES: [&str; 2] = ["ena", "gve"];

/// A sentence that names the interface, the reason and the remedy.
pub fn refusal(errno: i32, native: bool, facts: &Facts) -> String {
    let (name, mode) = (facts.name(), if native { "native" } else { "generic" });
    let reason = reason(errno, native, facts);
    format!("cannot attach to {name} in {mode} mode: {reason}")
}

fn reason(errno: i32, native: bool, facts: &Facts) -> String {
    let name = facts.name();
    let generic = "or use --mode generic, which is slower";
    let driver = facts.driver.as_deref();
    let its_driver =
        driver.map_or("its driver".to_owned(), |driver| format!("its driver {driver}"));
    match errno {
        libc::EPERM | libc::EACCES => "not permitted: it takes CAP_BPF and CAP_NET_ADMIN of the \
             host, outside of user namespaces; run it as root (`sudo`)"
            .to_owned(),
        libc::EBUSY => format!(
            "another XDP program holds it: `ip link set dev {name} xdp off`, or end the program \
             that holds it (`bpftool link`)"
        ),
        libc::EEXIST => {
            let other = if native { "xdpgeneric" } else { "xdp" };
            format!("a program is attached in the other mode: `ip link set dev {name} {other} off`")
        }
        libc::ENODEV => "it is gone: `ip link` shows what there is".to_owned(),
        libc::E2BIG => "this kernel does not know an option that it was given: Linux 6.1 or newer \
             is needed"
            .to_owned(),
        libc::EOPNOTSUPP if native && driver == Some("virtio_net") => format!(
            "its host does not let receive offloads be switched off: have the host offer \
             ctrl_guest_offloads, or start the machine with guest_csum=off, guest_tso4=off, \
             guest_tso6=off, guest_ecn=off and guest_ufo=off, {generic}"
        ),
        libc::EOPNOTSUPP if native => {
            format!(
                "{its_driver} cannot, or not as it is set now: use another interface, {generic}"
            )
        }
        libc::EINVAL | libc::ERANGE if native => unsuitable(&its_driver, generic, facts),
        libc::ENOMEM | libc::ENOSPC if native => too_few_queues(&its_driver, generic, facts),
        libc::EINVAL | libc::EOPNOTSUPP => format!(
            "not as it is set now: switch off large receive offload (`ethtool -K {name} lro off`)"
        ),
        _ => format!(
            "{}: the kernel's log may say more (`dmesg`)",
            io::Error::from_raw_os_error(errno)
        ),
    }
}

/// EINVAL and ERANGE: the driver's settings do not go with XDP.
fn unsuitable(its_driver: &str, generic: &str, facts: &Facts) -> String {
    let name = facts.name();
    let mtu = facts.details.link.mtu;
    let mut remedies = Vec::new();
    if let Some(peer) = facts.peer.as_ref().filter(|peer| peer.mtu > MTU_SAFE) {
        let command = peer.place.command(&format!("ip link set {} mtu {MTU_SAFE}", peer.name));
        remedies.push(format!("lower the MTU of {} at its other end ({command})", peer.mtu));
    }
    if mtu > MTU_SAFE {
        remedies.push(format!("lower its MTU of {mtu} (ip link set {name} mtu {MTU_SAFE})"));
    }
    if let Some(Queues { combined, .. }) = facts.queues
        && combined > 1
        && facts.driver.as_deref().is_some_and(|driver| TWICE_THE_QUEUES.contains(&driver))
    {
        let half = combined / 2;
        remedies.push(format!(
            "leave half of its {combined} queues to XDP (ethtool -L {name} combined {half})"
        ));
    }
    let lro = |offloads: &Offloads| offloads.active.contains("rx-lro");
    if facts.offloads.as_ref().is_some_and(lro) {
        remedies.push(format!("switch off large receive offload (ethtool -K {name} lro off)"));
    }
    if remedies.is_empty() {
        remedies.push("look into the kernel's log (dmesg) for the setting".to_owned());
    }
    format!("{its_driver} cannot as it is set now: {}, {generic}", remedies.join(", "))
}

/// ENOMEM and ENOSPC: XDP takes queues of its own, often one for each CPU.
fn too_few_queues(its_driver: &str, generic: &str, facts: &Facts) -> String {
    let name = facts.name();
    let has = match facts.queues {
        Some(Queues { rx, tx, combined: 0 }) => format!("it has {rx} to receive and {tx} to send"),
        Some(Queues { combined, .. }) => format!("it has {combined}"),
        None => "see `ethtool -l`".to_owned(),
    };
    let remedy = match facts.details.link.kind.as_deref() {
        Some("veth") => {
            "make both ends with as many (`ip link add … numrxqueues N numtxqueues N`)".to_owned()
        }
        _ => format!(
            "change their number (`ethtool -L {name} combined N`) or shorten them (`ethtool -G {name} rx 512 tx 512`)"
        ),
    };
    format!("{its_driver} lacks queues or memory for XDP ({has}): {remedy}, {generic}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::{
        fixtures::{nic, offloads, veth},
        peer::Place,
    };

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn error_numbers_become_sentences() {
        let mut jumbo = nic();
        jumbo.details.link.mtu = 9000;
        let mut ena = nic();
        ena.driver = Some("ena".into());
        ena.offloads = Some(offloads(&["rx-lro"], &[]));
        let mut virtio = nic();
        virtio.driver = Some("virtio_net".into());
        let mut jumbo_veth = veth(Place::Named("blue".into()), &[]);
        jumbo_veth.peer.as_mut().unwrap().mtu = 9000;
        let mut unknown = nic();
        (unknown.driver, unknown.queues) = (None, None);

        let cases = [
            (
                libc::EPERM,
                true,
                &unknown,
                "native mode: not permitted: it takes CAP_BPF and CAP_NET_ADMIN of the host, outside of user namespaces; run it as root (`sudo`)",
            ),
            (
                libc::EBUSY,
                true,
                &unknown,
                "native mode: another XDP program holds it: `ip link set dev eth0 xdp off`, or end the program that holds it (`bpftool link`)",
            ),
            (
                libc::EEXIST,
                true,
                &unknown,
                "native mode: a program is attached in the other mode: `ip link set dev eth0 xdpgeneric off`",
            ),
            (
                libc::EEXIST,
                false,
                &unknown,
                "generic mode: a program is attached in the other mode: `ip link set dev eth0 xdp off`",
            ),
            (
                libc::ENODEV,
                true,
                &unknown,
                "native mode: it is gone: `ip link` shows what there is",
            ),
            (
                libc::E2BIG,
                true,
                &unknown,
                "native mode: this kernel does not know an option that it was given: Linux 6.1 or newer is needed",
            ),
            (
                libc::EOPNOTSUPP,
                true,
                &unknown,
                "native mode: its driver cannot, or not as it is set now: use another interface, or use --mode generic, which is slower",
            ),
            (
                libc::EOPNOTSUPP,
                true,
                &virtio,
                "native mode: its host does not let receive offloads be switched off: have the host offer ctrl_guest_offloads, or start the machine with guest_csum=off, guest_tso4=off, guest_tso6=off, guest_ecn=off and guest_ufo=off, or use --mode generic, which is slower",
            ),
            (
                libc::EINVAL,
                true,
                &unknown,
                "native mode: its driver cannot as it is set now: look into the kernel's log (dmesg) for the setting, or use --mode generic, which is slower",
            ),
            (
                libc::EINVAL,
                true,
                &jumbo,
                "native mode: its driver ixgbe cannot as it is set now: lower its MTU of 9000 (ip link set eth0 mtu 1500), or use --mode generic, which is slower",
            ),
            (
                libc::EINVAL,
                true,
                &ena,
                "native mode: its driver ena cannot as it is set now: leave half of its 8 queues to XDP (ethtool -L eth0 combined 4), switch off large receive offload (ethtool -K eth0 lro off), or use --mode generic, which is slower",
            ),
            (
                libc::ERANGE,
                true,
                &jumbo_veth,
                "native mode: its driver veth cannot as it is set now: lower the MTU of 9000 at its other end (ip netns exec blue ip link set vb mtu 1500), or use --mode generic, which is slower",
            ),
            (
                libc::EINVAL,
                false,
                &nic(),
                "generic mode: not as it is set now: switch off large receive offload (`ethtool -K eth0 lro off`)",
            ),
            (
                libc::ENOMEM,
                true,
                &nic(),
                "native mode: its driver ixgbe lacks queues or memory for XDP (it has 8): change their number (`ethtool -L eth0 combined N`) or shorten them (`ethtool -G eth0 rx 512 tx 512`), or use --mode generic, which is slower",
            ),
            (
                libc::ENOSPC,
                true,
                &jumbo_veth,
                "native mode: its driver veth lacks queues or memory for XDP (it has 1 to receive and 1 to send): make both ends with as many (`ip link add … numrxqueues N numtxqueues N`), or use --mode generic, which is slower",
            ),
            (
                libc::ENOMEM,
                true,
                &unknown,
                "native mode: its driver lacks queues or memory for XDP (see `ethtool -l`): change their number (`ethtool -L eth0 combined N`) or shorten them (`ethtool -G eth0 rx 512 tx 512`), or use --mode generic, which is slower",
            ),
            (
                libc::EIO,
                true,
                &unknown,
                "native mode: Input/output error (os error 5): the kernel's log may say more (`dmesg`)",
            ),
            (
                libc::ENOMEM,
                false,
                &unknown,
                "generic mode: Cannot allocate memory (os error 12): the kernel's log may say more (`dmesg`)",
            ),
        ];
        for (errno, native, facts, expected) in cases {
            let expected = format!("cannot attach to {} in {expected}", facts.name());
            assert_eq!(refusal(errno, native, facts), expected, "errno {errno}");
        }
    }
}

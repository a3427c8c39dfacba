//! BPF programs of others that Linux runs on packets between our interfaces: on tc's newer hooks
//! (tcx), and on netfilter's.

use std::io;

use aya::{
    programs::{
        ProgramError, SchedClassifier, TcAttachType,
        links::{LinkError, LinkType},
        loaded_links,
        tc::TcError,
    },
    sys::SyscallError,
};

use crate::bypass::{Families, Finding, Kind, Port};

/// In the network namespace of the calling thread.
pub fn bypassed(ports: &[Port]) -> io::Result<Vec<Finding>> {
    let mut found = netfilter_links()?;
    for port in ports {
        for (hook, place) in [(TcAttachType::Ingress, "ingress"), (TcAttachType::Egress, "egress")]
        {
            found.extend(tcx(port, hook, place)?);
        }
    }
    Ok(found)
}

fn tcx(Port { name, .. }: &Port, hook: TcAttachType, place: &str) -> io::Result<Vec<Finding>> {
    let programs = match SchedClassifier::query_tcx(name, hook) {
        Ok((_, programs)) => programs,
        Err(error) => {
            let error = program_error(error);
            return match error.raw_os_error() {
                // Before 6.6 there is no such hook; or the interface has gone, or a program.
                Some(libc::EINVAL | libc::ENODEV | libc::ENOENT) => Ok(Vec::new()),
                _ => Err(error),
            };
        }
    };
    let finding = |id| Finding {
        kind: Kind::Tc,
        families: Families::BOTH,
        what: format!("the BPF program with id {id} on {name}, tcx {place}"),
        remedy: "end what holds it (`bpftool link`)".to_owned(),
    };
    Ok(programs.iter().map(|program| finding(program.id())).collect())
}

/// The kernel does not say in which network namespace a link is, nor of which family: it may be
/// ours.
fn netfilter_links() -> io::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for link in loaded_links() {
        let link = match link.map_err(link_error) {
            Ok(link) => link,
            // It has gone meanwhile; or it is only being made, and there the next time.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        // A type that aya does not know is newer than netfilter's.
        if link.link_type().is_ok_and(|kind| kind == LinkType::Netfilter) {
            found.push(Finding {
                kind: Kind::Netfilter,
                families: Families::BOTH,
                what: format!("the BPF link {} on a hook of netfilter", link.id()),
                remedy: "end what holds it (`bpftool link`)".to_owned(),
            });
        }
    }
    Ok(found)
}

fn link_error(error: LinkError) -> io::Error {
    match error {
        LinkError::SyscallError(SyscallError { io_error, .. }) => io_error,
        error => io::Error::other(error),
    }
}

fn program_error(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(SyscallError { io_error, .. })
        | ProgramError::TcError(TcError::IoError(io_error)) => io_error,
        error => io::Error::other(error),
    }
}

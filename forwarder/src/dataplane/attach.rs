//! Links between the program and interfaces: all or none.

use std::{collections::BTreeMap, io};

use aya::programs::{
    ProgramError, Xdp, XdpMode,
    links::{FdLink, PinnedLink},
};

use super::Pins;
use crate::config::Mode;

/// How a program is attached in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedMode {
    Native,
    Generic,
}

impl AttachedMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

#[derive(Debug)]
pub struct Attached {
    pub ifindex: u32,
    pub mode: AttachedMode,
    /// Why it is not native, where that was wanted.
    pub fallback: Option<io::Error>,
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("cannot attach to {interface} in {} mode: {error}", mode.name())]
    Refused { interface: String, ifindex: u32, mode: AttachedMode, error: io::Error },
    #[error("cannot pin the link of {interface}: {error}")]
    Pin { interface: String, error: io::Error },
    #[error("the eBPF object has no program to attach")]
    NoProgram,
}

/// A link that ends with us, or one that outlives us until it is unpinned.
#[derive(Debug)]
pub(super) enum Link {
    Owned(FdLink),
    Pinned(PinnedLink),
}

impl Link {
    /// Pinned by this name, where there are pins.
    pub(super) fn new(name: &str, link: FdLink, pins: Option<&Pins>) -> io::Result<Self> {
        match pins {
            Some(pins) => Ok(Self::Pinned(pins.pin(name, link)?)),
            None => Ok(Self::Owned(link)),
        }
    }

    /// Returns the id of the program, which is there until it is detached.
    pub(super) fn detach(self) -> Option<u32> {
        match self {
            Self::Owned(link) => Some(link.info().ok()?.program_id()),
            // The file may be gone: then dropping the last reference is all there is to do.
            Self::Pinned(link) => Some(link.unpin().ok()?.info().ok()?.program_id()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<u32, Link>);

impl Links {
    pub(super) fn attach_all(
        &mut self,
        program: Option<&mut Xdp>,
        interfaces: &[(u32, String)],
        mode: Mode,
        pins: Option<&Pins>,
    ) -> Result<Vec<Attached>, AttachError> {
        let program = program.ok_or(AttachError::NoProgram)?;
        let mut attach = |(ifindex, name): &(u32, String)| {
            let (link, attached) = attach_one(program, *ifindex, name, mode)?;
            let link = Link::new(&ifindex.to_string(), link, pins)
                .map_err(|error| AttachError::Pin { interface: name.clone(), error })?;
            self.0.insert(*ifindex, link);
            Ok(attached)
        };
        let attached: Result<_, _> = interfaces.iter().map(&mut attach).collect();
        if attached.is_err() {
            self.detach_all();
        }
        attached
    }

    /// Returns the id of the program, which is there until it is detached.
    pub(super) fn detach(&mut self, ifindex: u32) -> Option<u32> {
        self.0.remove(&ifindex)?.detach()
    }

    pub(super) fn detach_all(&mut self) -> Vec<u32> {
        let all: Vec<u32> = self.0.keys().copied().collect();
        all.into_iter().filter_map(|ifindex| self.detach(ifindex)).collect()
    }
}

fn attach_one(
    program: &mut Xdp,
    ifindex: u32,
    name: &str,
    mode: Mode,
) -> Result<(FdLink, Attached), AttachError> {
    let mut attach = |mode: AttachedMode| {
        let refused = |error| {
            let error = into_io(error);
            AttachError::Refused { interface: name.to_owned(), ifindex, mode, error }
        };
        let flags = match mode {
            AttachedMode::Native => XdpMode::Driver,
            AttachedMode::Generic => XdpMode::Skb,
        };
        let id = program.attach_to_if_index(ifindex, flags).map_err(refused)?;
        let link = program.take_link(id).map_err(refused)?;
        // Without a link there is nothing that could be pinned or replaced.
        let no_link = |error| refused(ProgramError::IOError(io::Error::other(error)));
        FdLink::try_from(link).map_err(no_link)
    };
    let attached = |mode, fallback| Attached { ifindex, mode, fallback };
    let native = match mode {
        Mode::Generic => None,
        Mode::Auto | Mode::Native => Some(attach(AttachedMode::Native)),
    };
    match native {
        Some(Ok(link)) => Ok((link, attached(AttachedMode::Native, None))),
        // A program that is there already is no driver that cannot.
        Some(Err(AttachError::Refused { error, .. }))
            if mode == Mode::Auto && error.raw_os_error() != Some(libc::EBUSY) =>
        {
            let link = attach(AttachedMode::Generic)?;
            Ok((link, attached(AttachedMode::Generic, Some(error))))
        }
        Some(Err(error)) => Err(error),
        None => Ok((attach(AttachedMode::Generic)?, attached(AttachedMode::Generic, None))),
    }
}

fn into_io(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        ProgramError::IOError(error) => error,
        error => io::Error::other(error),
    }
}

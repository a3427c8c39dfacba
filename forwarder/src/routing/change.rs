//! What commands make of the next hops of one prefix. Pure.

use crate::{
    paths::{Member, Paths},
    route::{Existing, NEXT_HOPS_MAX},
};

/// Why next hops cannot be as the command says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// There are some already; of this CPU, or of those without their own.
    There { cpu: Option<u32>, members: Vec<Member> },
    /// This one is there already.
    Twice { cpu: Option<u32>, member: Member },
    /// More than there may be.
    TooMany,
    /// A connected route is for all CPUs, and has no other next hop beside.
    ConnectedBeside,
}

/// The next hops after these were added, for the CPUs without their own or for some.
pub(super) fn with(
    before: Option<&Paths>,
    members: &[Member],
    cpus: Option<&[u32]>,
    existing: Existing,
) -> Result<Paths, Conflict> {
    let mut paths = before.cloned().unwrap_or_default();
    for cpu in keys(cpus) {
        let there = paths.own(cpu);
        if existing == Existing::Refuse && !there.is_empty() {
            return Err(Conflict::There { cpu, members: there.to_vec() });
        }
        let mut all = if existing == Existing::Append { there.to_vec() } else { Vec::new() };
        for member in members {
            if all.iter().any(|it| it.hop == member.hop) {
                return Err(Conflict::Twice { cpu, member: *member });
            }
            all.push(*member);
        }
        if all.len() > NEXT_HOPS_MAX {
            return Err(Conflict::TooMany);
        }
        paths.set(cpu, all);
    }
    let is_connected = |member: &Member| member.hop.via.is_none();
    let several = paths.members().len() > 1 || !paths.cpus().is_empty();
    if several && paths.lists().flatten().any(is_connected) {
        return Err(Conflict::ConnectedBeside);
    }
    Ok(paths)
}

/// What of a route is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// The rest; empty where nothing is left.
    Rest(Paths),
    /// A CPU has nothing of its own.
    NothingOwn {
        cpu: u32,
    },
    NoMatch,
    /// Several next hops match, and others do not.
    Ambiguous(Vec<Member>),
}

/// The next hops without those that match. All of them: the route goes, or what these CPUs have of
/// their own; one of several: it alone.
pub(super) fn without(
    before: &Paths,
    cpus: Option<&[u32]>,
    matches: impl Fn(&Member) -> bool,
) -> Without {
    let mut paths = before.clone();
    for cpu in keys(cpus) {
        let own = before.own(cpu);
        if let Some(cpu) = cpu.filter(|_| own.is_empty()) {
            return Without::NothingOwn { cpu };
        }
        let (gone, rest): (Vec<Member>, Vec<Member>) = own.iter().partition(|it| matches(it));
        match (cpu, &gone[..], &rest[..]) {
            // A route that has next hops of single CPUs alone.
            (None, [], []) if before.lists().flatten().all(&matches) => {
                return Without::Rest(Paths::default());
            }
            (_, [], _) => return Without::NoMatch,
            (None, _, []) => return Without::Rest(Paths::default()),
            (Some(_), _, []) | (_, [_], _) => paths.set(cpu, rest),
            _ => return Without::Ambiguous(gone),
        }
    }
    Without::Rest(paths)
}

fn keys(cpus: Option<&[u32]>) -> Vec<Option<u32>> {
    cpus.map_or(vec![None], |cpus| cpus.iter().copied().map(Some).collect())
}

//! A group: several next hops of which each flow gets one, by its bucket.

use forwarder_common::abi::ADJACENCY_NONE;

use super::{
    Table, TableError,
    hops::Hops,
    spread::{self, Share},
};
use crate::paths::Member;

/// Several next hops, and the buckets that flows choose them by.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) start: u32,
    /// The member that each bucket belongs to.
    homes: Vec<u16>,
    /// The member that each has.
    owners: Vec<u16>,
    /// The adjacency that lies in each.
    written: Vec<u32>,
}

impl Group {
    /// A flow that had bucket `i` of `n` has bucket `i` or `i + n` of twice as many.
    pub(super) fn new(start: u32, weights: &[u16], size: u32, seed: &Seed) -> Self {
        let before: Vec<Option<u16>> =
            seed.homes.iter().copied().cycle().take(size as usize).collect();
        let homes = spread::homes(weights, size, &before);
        let owners = seed.owners.iter().cycle().zip(&homes);
        let mut owners: Vec<u16> = owners.map(|(owner, home)| owner.unwrap_or(*home)).collect();
        owners.extend_from_slice(&homes[owners.len()..]);
        let written = vec![UNWRITTEN; homes.len()];
        Self { start, homes, owners, written }
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.homes.len()).unwrap_or(0)
    }

    /// At least one of the members can be used.
    pub(super) fn update(
        &mut self,
        members: &[Member],
        hops: &Hops,
        table: &mut impl Table,
    ) -> Result<(), TableError> {
        let adjacencies: Vec<Option<u32>> =
            members.iter().map(|member| hops.adjacency(member.hop).ok()).collect();
        let share = |(member, way): (&Member, &Option<u32>)| Share {
            weight: member.weight,
            usable: way.is_some(),
        };
        let shares: Vec<Share> = members.iter().zip(&adjacencies).map(share).collect();
        self.owners = spread::spread(&self.homes, &shares, &self.owners);
        let adjacency = |owner: &u16| adjacencies.get(usize::from(*owner)).copied().flatten();
        let wanted = self.owners.iter().map(adjacency).map(|way| way.unwrap_or(ADJACENCY_NONE));
        write(self.start, &mut self.written, wanted, table)
    }

    /// Leads nowhere, so that its adjacencies can be used for others.
    pub(super) fn clear(&mut self, table: &mut impl Table) -> Result<(), TableError> {
        write(self.start, &mut self.written, std::iter::repeat(ADJACENCY_NONE), table)
    }
}

/// What a group takes over of another, by bucket: the numbers that members have in the new one.
#[derive(Debug, Default)]
pub(super) struct Seed {
    homes: Vec<Option<u16>>,
    owners: Vec<Option<u16>>,
}

impl Seed {
    /// Empty where the two have no next hop in common.
    pub(super) fn of(group: &Group, former: &[Member], members: &[Member]) -> Self {
        let number = |hop| (0..).zip(members).find(|(_, it)| it.hop == hop).map(|(at, _)| at);
        let numbers: Vec<Option<u16>> = former.iter().map(|member| number(member.hop)).collect();
        if numbers.iter().all(Option::is_none) {
            return Self::default();
        }
        let renumbered = |of: &[u16]| of.iter().map(|it| numbers[usize::from(*it)]).collect();
        Self { homes: renumbered(&group.homes), owners: renumbered(&group.owners) }
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.homes.len()).unwrap_or(0)
    }
}

/// In no bucket: what lies there is unknown before the first write.
const UNWRITTEN: u32 = u32::MAX;

/// Each bucket is one aligned store, and is recorded as soon as it is done.
fn write(
    start: u32,
    written: &mut [u32],
    wanted: impl Iterator<Item = u32>,
    table: &mut impl Table,
) -> Result<(), TableError> {
    for ((index, written), wanted) in (start..).zip(written).zip(wanted) {
        if *written != wanted {
            table.set_bucket(index, wanted)?;
            *written = wanted;
        }
    }
    Ok(())
}

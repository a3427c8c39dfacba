//! Which member of a group has which bucket. Pure.
//!
//! Each bucket has a home: the member that it belongs to when all can be used. Where its home cannot
//! be used it goes to another, and when the home comes back it returns. So flows of a member that
//! works stay with it, whatever becomes of the others. A group that follows another, with members
//! more or fewer, begins with the homes of that.

use forwarder_common::abi::GROUP_BUCKETS_MAX;

/// Buckets for a unit of weight, where there may be as many: shares are right to a 64th of it.
const BUCKETS_PER_WEIGHT: u32 = 64;

/// A member, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) weight: u16,
    pub(super) usable: bool,
}

/// How many buckets a group of members with these weights needs: a power of two.
pub(super) fn size(weights: &[u16]) -> u32 {
    let divisor = weights.iter().fold(0, |a, b| greatest_divisor(a, *b)).max(1);
    let sum: u32 = weights.iter().map(|weight| u32::from(weight / divisor)).sum();
    sum.saturating_mul(BUCKETS_PER_WEIGHT).min(GROUP_BUCKETS_MAX).next_power_of_two()
}

/// The home of each bucket, as the index of a member. Each gets its share by weight, rounded down
/// or up. A bucket stays with who had it `before`, as far as shares allow; empty: nobody had any.
pub(super) fn homes(weights: &[u16], size: u32, before: &[Option<u16>]) -> Vec<u16> {
    let mut had = vec![0; weights.len()];
    for member in before.iter().flatten() {
        had[usize::from(*member)] += 1;
    }
    let mut left = counts(weights, size, &had);
    let mut give = |member: u16| {
        let left = &mut left[usize::from(member)];
        *left = left.checked_sub(1)?;
        Some(member)
    };
    let before = before.iter().copied().chain(std::iter::repeat(None));
    let kept: Vec<Option<u16>> =
        before.take(size as usize).map(|member| member.and_then(&mut give)).collect();
    let mut others = (0..).zip(left).flat_map(|(member, left)| (0..left).map(move |_| member));
    kept.into_iter().filter_map(|kept| kept.or_else(|| others.next())).collect()
}

/// How many buckets each member gets, that has had so many.
fn counts(weights: &[u16], size: u32, had: &[u64]) -> Vec<u64> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum::<u64>().max(1);
    let share = |weight: u16| u64::from(weight) * u64::from(size);
    let mut counts: Vec<u64> = weights.iter().map(|weight| share(*weight) / sum).collect();
    let rest = |member: usize| share(weights[member]) % sum;
    // Who is rounded up: those that have more already, then those that must get some in any case,
    // and only then those that could stay as they are.
    let moves = |member: usize| match (had[member], counts[member]) {
        _ if rest(member) == 0 => 3,
        (had, count) if had > count => 0,
        (had, count) if had == 0 || had < count => 1,
        _ => 2,
    };
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|member| (moves(*member), std::cmp::Reverse(rest(*member))));
    let left = u64::from(size) - counts.iter().sum::<u64>();
    for (_, member) in (0..left).zip(order) {
        counts[member] += 1;
    }
    counts
}

/// Who has which bucket now, where `before` had them until now. As it was, where no member can be
/// used.
pub(super) fn spread(homes: &[u16], shares: &[Share], before: &[u16]) -> Vec<u16> {
    let mut balance = Balance::new(shares, homes.len());
    if balance.weights == 0 {
        return before.to_vec();
    }
    let usable = |member: u16| shares[usize::from(member)].usable;
    let mut owners: Vec<Option<u16>> = homes.iter().copied().map(Some).collect();
    let (at_home, homeless): (Vec<usize>, Vec<usize>) =
        (0..homes.len()).partition(|bucket| usable(homes[*bucket]));
    for bucket in at_home {
        balance.give(homes[bucket]);
    }
    for bucket in &homeless {
        let host = before[*bucket];
        owners[*bucket] = (usable(host) && balance.behind(host) > 0).then(|| balance.give(host));
    }
    for bucket in &homeless {
        owners[*bucket].get_or_insert_with(|| balance.give(balance.furthest_behind()));
    }
    let mut owners: Vec<u16> = owners.into_iter().flatten().collect();
    // One that has come back gets of the homeless buckets too.
    loop {
        let poorest = balance.furthest_behind();
        let donor = homeless.iter().min_by_key(|bucket| balance.behind(owners[**bucket]));
        let Some(bucket) = donor.filter(|_| balance.behind(poorest) >= balance.weights) else {
            return owners;
        };
        if balance.behind(owners[*bucket]) >= 0 {
            return owners;
        }
        balance.take(owners[*bucket]);
        owners[*bucket] = balance.give(poorest);
    }
}

/// How many buckets members lack, in parts of a bucket: as many as the weights sum up to.
struct Balance<'a> {
    shares: &'a [Share],
    weights: i64,
    behind: Vec<i64>,
}

impl<'a> Balance<'a> {
    fn new(shares: &'a [Share], buckets: usize) -> Self {
        let buckets = i64::try_from(buckets).unwrap_or(i64::MAX);
        let weight = |share: &Share| if share.usable { i64::from(share.weight) } else { 0 };
        let weights = shares.iter().map(weight).sum();
        let behind = shares.iter().map(|share| weight(share).saturating_mul(buckets)).collect();
        Self { shares, weights, behind }
    }

    fn behind(&self, member: u16) -> i64 {
        self.behind[usize::from(member)]
    }

    fn give(&mut self, member: u16) -> u16 {
        self.behind[usize::from(member)] -= self.weights;
        member
    }

    fn take(&mut self, member: u16) {
        self.behind[usize::from(member)] += self.weights;
    }

    /// Of those that can be used.
    fn furthest_behind(&self) -> u16 {
        let usable = (0..).zip(self.shares).filter(|(_, share)| share.usable);
        let behind = usable.map(|(member, _)| (self.behind(member), std::cmp::Reverse(member)));
        behind.max().map_or(0, |(_, std::cmp::Reverse(member))| member)
    }
}

fn greatest_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(owners: &[u16], member: usize) -> i64 {
        i64::try_from(owners.iter().filter(|owner| usize::from(**owner) == member).count()).unwrap()
    }

    fn shares(weights: &[u16], usable: &[bool]) -> Vec<Share> {
        weights
            .iter()
            .zip(usable)
            .map(|(weight, usable)| Share { weight: *weight, usable: *usable })
            .collect()
    }

    /// By how many buckets a member's number differs from its share, at most.
    fn assert_fair(owners: &[u16], shares: &[Share], bound: i64) {
        let weight = |share: &Share| if share.usable { i64::from(share.weight) } else { 0 };
        let sum: i64 = shares.iter().map(weight).sum();
        let size = i64::try_from(owners.len()).unwrap();
        for (member, share) in shares.iter().enumerate() {
            let off = (count(owners, member) * sum - size * weight(share)).abs();
            assert!(off < bound * sum, "member {member}: {off}/{sum} of a bucket off: {shares:?}");
            assert!(share.usable || count(owners, member) == 0, "{member} cannot be used");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_with_room_for_each_weight() {
        for (weights, expected) in [
            (&[1, 1][..], 128),
            (&[7, 7], 128),
            (&[1, 2], 256),
            (&[50, 100, 50], 256),
            (&[1; 16], 1024),
            (&[1; 64], 1024),
            (&[1, 256], 1024),
        ] {
            assert_eq!(size(weights), expected, "{weights:?}");
        }
    }

    #[test]
    fn a_member_that_dies_gives_to_the_others_by_weight_and_comes_back() {
        let weights = [1, 2, 1];
        let homes = homes(&weights, 256, &[]);
        assert_eq!([0, 1, 2].map(|member| count(&homes, member)), [64, 128, 64]);
        let two = spread(&homes, &shares(&weights, &[false, true, true]), &homes);
        // 171 of 256 are two thirds.
        assert_eq!([0, 1, 2].map(|member| count(&two, member)), [0, 171, 85]);
        let one = spread(&homes, &shares(&weights, &[false, false, true]), &two);
        assert_eq!(count(&one, 2), 256);
        let nobody = spread(&homes, &shares(&weights, &[false; 3]), &one);
        assert_eq!(nobody, one);
        assert_eq!(spread(&homes, &shares(&weights, &[true; 3]), &one), homes);
    }

    #[test]
    fn members_more_or_fewer_move_no_bucket_that_need_not() {
        let some = |homes: &[u16]| homes.iter().copied().map(Some).collect::<Vec<_>>();
        // Weights, and which member of before each is; who had what; who has moved.
        let two = homes(&[1, 1], 256, &[]);
        let three = homes(&[1, 1, 1], 256, &some(&two));
        assert_eq!([0, 1, 2].map(|member| count(&three, member)), [86, 85, 85]);
        let moved = two.iter().zip(&three).filter(|(was, is)| was != is);
        assert_eq!(moved.count(), 85);
        // The first goes: those behind it move up by one.
        let before: Vec<_> = three.iter().map(|home| home.checked_sub(1)).collect();
        let left = homes(&[1, 1], 256, &before);
        assert!(before.iter().zip(&left).all(|(was, is)| was.is_none_or(|was| was == *is)));
        assert_eq!(count(&left, 0), 128);
        // In a range that is half as long: what comes first counts.
        let short = homes(&[1, 1], 128, &some(&two));
        assert_eq!([0, 1].map(|member| count(&short, member)), [64, 64]);
    }

    fn some_group() -> impl Strategy<Value = (Vec<u16>, Vec<Vec<bool>>)> {
        (2..12usize).prop_flat_map(|members| {
            let weight = prop_oneof![3 => 1..5u16, 1 => 1..=256u16];
            let usable = prop::collection::vec(prop::bool::weighted(0.7), members);
            (prop::collection::vec(weight, members), prop::collection::vec(usable, 1..8))
        })
    }

    proptest! {
        #[test]
        fn any_history_is_fair_and_leaves_flows_where_they_are((weights, history) in some_group()) {
            let size = size(&weights);
            let homes = homes(&weights, size, &[]);
            prop_assert_eq!(homes.len(), size as usize);
            let all = shares(&weights, &vec![true; weights.len()]);
            assert_fair(&homes, &all, 1);
            let mut owners = homes.clone();
            for usable in history {
                let now = shares(&weights, &usable);
                let next = spread(&homes, &now, &owners);
                prop_assert_eq!(spread(&homes, &now, &owners), next.clone());
                prop_assert_eq!(spread(&homes, &now, &next), next.clone(), "it rests");
                if usable.contains(&true) {
                    assert_fair(&next, &now, 2);
                    for bucket in 0..homes.len() {
                        let home = usize::from(homes[bucket]);
                        prop_assert!(!usable[home] || next[bucket] == homes[bucket]);
                    }
                }
                owners = next;
            }
            prop_assert_eq!(spread(&homes, &all, &owners), homes);
        }

        #[test]
        fn a_member_more_or_less_moves_what_it_takes_or_had(
            (weights, history) in some_group(),
            goes: prop::sample::Index,
        ) {
            let size = size(&weights);
            let all = homes(&weights, size, &[]);
            let goes = goes.index(weights.len());
            let is_gone = |member: usize| member == goes;
            let mut less = weights.clone();
            less.remove(goes);
            let down = |member: u16| match usize::from(member) {
                it if is_gone(it) => None,
                it if it > goes => Some(member - 1),
                _ => Some(member),
            };
            let up = |member: u16| if usize::from(member) >= goes { member + 1 } else { member };
            let before: Vec<_> = all.iter().map(|home| down(*home)).collect();
            let left = homes(&less, size, &before);
            let usable = vec![true; less.len()];
            assert_fair(&left, &shares(&less, &usable), 1);
            let moved = before.iter().zip(&left).filter(|(was, is)| was.is_some_and(|it| it != **is));
            // What rounding asks for.
            let odd = weights.iter().any(|weight| *weight != weights[0]);
            let bound = if odd { less.len() } else { 0 };
            prop_assert!(moved.count() <= bound);
            // And back, with whatever happens in between.
            let mut now = left.clone();
            for _ in &history {
                now = homes(&less, size, &now.iter().copied().map(Some).collect::<Vec<_>>());
            }
            prop_assert_eq!(&now, &left, "it rests");
            let before: Vec<_> = left.iter().map(|home| Some(up(*home))).collect();
            let again = homes(&weights, size, &before);
            assert_fair(&again, &shares(&weights, &vec![true; weights.len()]), 1);
            let others = before.iter().zip(&again).filter(|(was, is)| {
                **was != Some(**is) && !is_gone(usize::from(**is))
            });
            prop_assert!(others.count() <= bound);
        }

        #[test]
        fn only_the_flows_of_a_member_that_dies_move((weights, history) in some_group(), dies: prop::sample::Index) {
            let size = size(&weights);
            let homes = homes(&weights, size, &[]);
            let dies = dies.index(weights.len());
            let mut one_less = vec![true; weights.len()];
            one_less[dies] = false;
            let next = spread(&homes, &shares(&weights, &one_less), &homes);
            for bucket in 0..homes.len() {
                prop_assert!(usize::from(homes[bucket]) == dies || next[bucket] == homes[bucket]);
            }
            // Of those that were homeless before, few move with it: what rounding asks for.
            let usable = &history[0];
            let settled = spread(&homes, &shares(&weights, usable), &homes);
            let mut less = usable.clone();
            less[dies] = false;
            if less.contains(&true) {
                let next = spread(&homes, &shares(&weights, &less), &settled);
                let moved = (0..homes.len()).filter(|bucket| {
                    usize::from(settled[*bucket]) != dies && next[*bucket] != settled[*bucket]
                });
                prop_assert!(moved.count() <= weights.len());
            }
        }
    }
}

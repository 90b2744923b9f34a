//! The division of the classes of a head into shards, and of the shards over ranks.

use std::ops::Range;

use lsoftmax_comm::Tree;

/// The most shards of a head.
const MOST: usize = 64;
/// The number of shards of a head with few classes; at most one per class.
const LEAST: usize = 8;
/// Classes of a shard, if there are enough for more than the least number of shards.
const CLASSES: usize = 256;

/// The classes of a head in shards: ranges of nearly the same size, in order.
///
/// The division is a function of the number of classes alone. A shard is what is computed, updated and saved as
/// a whole, and every rank has some of them, so that results do not depend on the number of ranks.
///
/// ```
/// use lsoftmax::ClassShards;
/// let shards = ClassShards::new(10_000_000);
/// assert_eq!((shards.count(), shards.classes(63)), (64, 9_843_750..10_000_000));
/// assert_eq!(shards.of_rank(3, 4)?, 48..64);
/// assert!(ClassShards::new(3).of_rank(0, 4).is_err());
/// # Ok::<(), lsoftmax::ShardError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassShards {
    classes: usize,
    count: usize,
}

/// More ranks than shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{classes} classes are divided into {shards} shards, too few for {ranks} ranks; use at most {shards} ranks, or do not divide the classes"
)]
pub struct ShardError {
    classes: usize,
    shards: usize,
    ranks: usize,
}

impl ClassShards {
    /// The division of so many classes.
    pub fn new(classes: usize) -> Self {
        let enough = (classes / CLASSES).clamp(LEAST, MOST);
        let count = (1 << enough.ilog2()).min(classes.max(1));
        Self { classes, count }
    }

    /// The number of all classes.
    pub fn all_classes(&self) -> usize {
        self.classes
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The classes of a shard.
    pub fn classes(&self, shard: usize) -> Range<usize> {
        bound(self.classes, shard, self.count)..bound(self.classes, shard + 1, self.count)
    }

    /// The shards of a rank.
    ///
    /// # Errors
    /// When there are more ranks than shards.
    pub fn of_rank(&self, rank: usize, ranks: usize) -> Result<Range<usize>, ShardError> {
        let Self { classes, count } = *self;
        if ranks > count {
            return Err(ShardError { classes, shards: count, ranks });
        }
        Ok(bound(count, rank, ranks)..bound(count, rank + 1, ranks))
    }

    /// The rank that has a shard.
    pub fn rank_of(&self, shard: usize, ranks: usize) -> usize {
        let ends = (0..ranks).map(|rank| bound(self.count, rank + 1, ranks));
        ends.take_while(|end| *end <= shard).count()
    }

    /// The numbers of the nodes of the tree over all shards that together are some of them; those of single shards
    /// if `single`.
    pub(super) fn nodes(&self, shards: &Range<usize>, single: bool) -> Vec<u64> {
        let tree = Tree { blocks: self.count, sections: 1 };
        let depth = if single { u32::MAX } else { 0 };
        tree.nodes(shards, depth).into_iter().map(|node| node.id).collect()
    }
}

fn bound(len: usize, part: usize, parts: usize) -> usize {
    (len as u128 * part as u128 / parts as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_all_classes_and_ranks_cover_all_shards() {
        for classes in (1..70).chain([255, 2048, 2055, 5000, 10_572, 1 << 20]) {
            let shards = ClassShards::new(classes);
            let covered = (0..shards.count()).flat_map(|shard| shards.classes(shard));
            assert!(covered.eq(0..classes), "{classes}");
            assert!((0..shards.count()).all(|shard| !shards.classes(shard).is_empty()));
            for ranks in 1..=shards.count() {
                let of = |rank| shards.of_rank(rank, ranks).unwrap();
                assert!((0..ranks).flat_map(of).eq(0..shards.count()), "{classes} {ranks}");
                for rank in 0..ranks {
                    assert!(of(rank).all(|shard| shards.rank_of(shard, ranks) == rank));
                    if ranks.is_power_of_two() && shards.count().is_power_of_two() {
                        assert_eq!(shards.nodes(&of(rank), false).len(), 1);
                    }
                }
            }
            assert!(shards.of_rank(0, shards.count() + 1).is_err());
        }
    }
}

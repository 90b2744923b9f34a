//! The fixed order of a sum: a binary tree over the blocks of a batch.
//!
//! The result of a sum of rounded numbers depends on its order. So the order is a function of sizes alone: a
//! batch is some blocks of images, a block some sections, and a range of them is halved until one is left. A rank
//! computes a range of blocks and adds what forms whole nodes of the tree; the rest of the tree is added when
//! the nodes of all ranks are together.

use std::ops::Range;

/// A binary tree over leaves: the sections of blocks, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The number of blocks.
    pub blocks: usize,
    /// The number of leaves of every block.
    pub sections: usize,
}

/// A node of a [`Tree`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number: 1 for the root, 2n and 2n + 1 for the halves of n.
    pub id: u64,
    /// The leaves below it.
    pub leaves: Range<usize>,
}

impl Node {
    /// The number of halvings from the root.
    fn depth(&self) -> u32 {
        self.id.ilog2()
    }
}

impl Tree {
    /// The nodes that together are the leaves of some `blocks`, in order. They are `depth` halvings below the root;
    /// less where a leaf comes first, more where the range cuts a node.
    ///
    /// ```
    /// use lsoftmax_comm::Tree;
    /// let tree = Tree { blocks: 8, sections: 1 };
    /// let ids = |blocks, depth| tree.nodes(&blocks, depth).iter().map(|node| node.id).collect::<Vec<_>>();
    /// assert_eq!(ids(0..4, 0), [2]);
    /// assert_eq!(ids(0..4, 2), [4, 5]);
    /// assert_eq!(ids(3..8, 0), [11, 3]);
    /// ```
    pub fn nodes(&self, blocks: &Range<usize>, depth: u32) -> Vec<Node> {
        let within = blocks.start * self.sections..blocks.end * self.sections;
        let mut found = Vec::new();
        let root = Node { id: 1, leaves: 0..self.blocks * self.sections };
        self.collect(root, &within, depth, &mut found);
        found
    }

    fn collect(&self, node: Node, within: &Range<usize>, depth: u32, found: &mut Vec<Node>) {
        let Range { start, end } = node.leaves;
        if start >= within.end || end <= within.start || start == end {
            return;
        }
        let inside = within.start <= start && end <= within.end;
        if inside && (node.depth() >= depth || end - start == 1) {
            found.push(node);
            return;
        }
        let middle = self.middle(start, end);
        self.collect(Node { id: 2 * node.id, leaves: start..middle }, within, depth, found);
        self.collect(Node { id: 2 * node.id + 1, leaves: middle..end }, within, depth, found);
    }

    /// Where a range of several leaves is halved: between two blocks, if it has several.
    fn middle(&self, start: usize, end: usize) -> usize {
        match (end - start) / self.sections {
            0 | 1 => start + (end - start).div_ceil(2),
            blocks => start + blocks.div_ceil(2) * self.sections,
        }
    }
}

/// Whether two nodes, by their numbers, are the halves of one.
pub fn are_siblings(left: u64, right: u64) -> bool {
    left.is_multiple_of(2) && left + 1 == right
}

/// Merges nodes with their siblings as far as possible. The nodes are in order; `merge` adds the right one to
/// the left one.
pub fn fold<T>(
    nodes: impl IntoIterator<Item = (u64, T)>,
    mut merge: impl FnMut(&mut T, T),
) -> Vec<(u64, T)> {
    let mut done: Vec<(u64, T)> = Vec::new();
    for (mut id, mut value) in nodes {
        while let Some((left, mut sum)) = done.pop_if(|(left, _)| are_siblings(*left, id)) {
            merge(&mut sum, value);
            (id, value) = (left / 2, sum);
        }
        done.push((id, value));
    }
    done
}

/// The blocks of every rank: as equal as possible, and nodes of the tree where the number of ranks allows.
///
/// # Panics
/// When there are fewer blocks than ranks.
pub fn shares(blocks: usize, ranks: usize) -> Vec<Range<usize>> {
    assert!((1..=blocks).contains(&ranks), "{blocks} blocks cannot be divided over {ranks} ranks");
    let tree = Tree { blocks, sections: 1 };
    let nodes = |depth| tree.nodes(&(0..blocks), depth);
    if ranks.is_power_of_two() {
        return nodes(ranks.ilog2()).into_iter().map(|node| node.leaves).collect();
    }
    // Eighths, or smaller nodes where there are more ranks.
    let nodes = nodes(ranks.next_power_of_two().ilog2().max(3));
    let bound = |rank: usize| match rank {
        0 => 0,
        rank => nodes[(rank * nodes.len()).div_ceil(ranks) - 1].leaves.end,
    };
    (0..ranks).map(|rank| bound(rank)..bound(rank + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum that shows its order.
    fn in_words(nodes: impl IntoIterator<Item = (u64, String)>) -> Vec<(u64, String)> {
        fold(nodes, |left, right| *left = format!("({left} {right})"))
    }

    #[test]
    fn the_order_of_a_sum_is_the_same_for_any_number_of_ranks() {
        for (blocks, sections) in [(1, 1), (1, 5), (2, 3), (7, 1), (7, 2), (13, 3), (16, 2)] {
            let tree = Tree { blocks, sections };
            let leaf = |node: Node| (node.id, node.leaves.start.to_string());
            let leaves = |range: &Range<usize>| tree.nodes(range, u32::MAX).into_iter().map(leaf);
            let alone = in_words(leaves(&(0..blocks)));
            assert_eq!(alone.len(), 1);
            for ranks in 1..=blocks {
                let parts = shares(blocks, ranks);
                let parts = parts.iter().flat_map(|range| {
                    let folded = in_words(leaves(range));
                    let ids: Vec<u64> = folded.iter().map(|(id, _)| *id).collect();
                    let expected =
                        tree.nodes(range, 0).iter().map(|node| node.id).collect::<Vec<_>>();
                    assert_eq!(ids, expected, "{blocks} {sections} {ranks}");
                    folded
                });
                assert_eq!(
                    in_words(parts.collect::<Vec<_>>()),
                    alone,
                    "{blocks} {sections} {ranks}"
                );
            }
        }
    }

    #[test]
    fn shares_cover_all_blocks_in_order_and_are_nodes_for_powers_of_two() {
        for blocks in 1..40 {
            for ranks in 1..=blocks {
                let shares = shares(blocks, ranks);
                let covered: Vec<usize> = shares.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..blocks).collect::<Vec<_>>(), "{blocks} {ranks}");
                assert!(shares.iter().all(|share| !share.is_empty()), "{blocks} {ranks}");
                let most = shares.iter().map(Range::len).max().unwrap();
                assert!(most <= 2 * blocks.div_ceil(ranks), "{blocks} {ranks}: {shares:?}");
                if ranks.is_power_of_two() {
                    let tree = Tree { blocks, sections: 1 };
                    assert!(shares.iter().all(|share| tree.nodes(share, 0).len() == 1));
                }
            }
        }
        let lengths =
            |blocks, ranks| shares(blocks, ranks).iter().map(Range::len).collect::<Vec<_>>();
        assert_eq!(lengths(16, 4), [4, 4, 4, 4]);
        assert_eq!(lengths(16, 3), [6, 6, 4]);
        assert_eq!(lengths(7, 2), [4, 3]);
    }
}

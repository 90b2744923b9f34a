//! The share of a batch that a rank computes, and the sums over all ranks.
//!
//! A batch is divided by its blocks of images. Statistics and gradients are sums over the tasks of all blocks in
//! the order of a [`Tree`], whichever rank computes a task, so one process and several have the same bits.

use std::ops::Range;
use std::sync::Arc;

use lsoftmax_comm::{Alone, Communicator, Node, Tree, fold, shares, sum};

use super::division::sections;
use super::layout::IMAGES;
use super::stack::StackError;

/// The images of a batch that this rank computes: some blocks of sixteen images. Without other ranks, all of them.
///
/// ```
/// use lsoftmax_comm::in_threads;
/// use lsoftmax_kernels::conv::BatchShare;
/// let images = in_threads(2, |comm| BatchShare::new(comm, 100).map(|share| share.images()));
/// assert_eq!(images, [Ok(0..64), Ok(64..100)]);
/// ```
#[derive(Clone, Debug)]
pub struct BatchShare {
    comm: Arc<dyn Communicator>,
    /// The number of images of the batch.
    total: usize,
    /// The blocks of every rank.
    shares: Vec<Range<usize>>,
}

impl BatchShare {
    /// This rank's share of batches of `total` images.
    ///
    /// # Errors
    /// When there are fewer blocks of sixteen images than ranks.
    pub fn new(comm: Arc<dyn Communicator>, total: usize) -> Result<Self, StackError> {
        let (blocks, ranks) = (total.div_ceil(IMAGES), comm.size());
        if blocks < ranks {
            return Err(StackError::Ranks { images: total, most: blocks, ranks });
        }
        let shares = shares(blocks, ranks);
        Ok(Self { comm, total, shares })
    }

    /// The share of this rank, of which it has `count` images: those of all ranks together are a batch.
    ///
    /// # Errors
    /// When a rank has another number of images than its share of so many.
    pub fn of_images(comm: Arc<dyn Communicator>, count: usize) -> Result<Self, StackError> {
        if comm.size() == 1 {
            return Ok(Self::alone(count));
        }
        let counts = comm.gather(&(count as u64).to_le_bytes());
        let number = |bytes: &Vec<u8>| {
            let bytes = bytes.as_slice().try_into().expect("a number of every rank");
            u64::from_le_bytes(bytes) as usize
        };
        let counts: Vec<usize> = counts.iter().map(number).collect();
        let share = Self::new(comm, counts.iter().sum())?;
        for (rank, found) in counts.into_iter().enumerate() {
            let expected = share.images_of(rank).len();
            if found != expected {
                return Err(StackError::Share { rank, expected, found });
            }
        }
        Ok(share)
    }

    /// The whole batch.
    pub(super) fn alone(total: usize) -> Self {
        let blocks = total.div_ceil(IMAGES);
        Self { comm: Arc::new(Alone), total, shares: std::iter::once(0..blocks).collect() }
    }

    pub(super) fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// The number of images of the batch.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The images of this rank.
    pub fn images(&self) -> Range<usize> {
        self.images_of(self.comm.rank())
    }

    fn images_of(&self, rank: usize) -> Range<usize> {
        let Range { start, end } = self.shares[rank];
        start * IMAGES..(end * IMAGES).min(self.total)
    }

    /// Collects rows, one per image, of all ranks.
    pub fn gather(&self, rows: &[f32]) -> Vec<f32> {
        let width = rows.len() / self.images().len().max(1);
        let lengths = (0..self.comm.size()).map(|rank| self.images_of(rank).len() * width);
        self.comm.gather_floats(rows, &lengths.collect::<Vec<_>>())
    }

    /// Whether there are other ranks.
    pub fn is_divided(&self) -> bool {
        self.comm.size() > 1
    }

    /// The sections that every block of the batch is divided into; see [`sections`].
    pub(super) fn sections(&self, count: usize, rows: usize) -> Vec<Range<usize>> {
        sections(self.total.div_ceil(IMAGES), count, rows)
    }

    fn tree(&self, sections: usize) -> Tree {
        Tree { blocks: self.total.div_ceil(IMAGES), sections }
    }

    fn blocks(&self) -> &Range<usize> {
        &self.shares[self.comm.rank()]
    }

    /// The nodes of the tree whose terms each rank adds by itself.
    fn ids(&self, tree: Tree) -> Vec<Vec<u64>> {
        let ids = |blocks| tree.nodes(blocks, 0).into_iter().map(|node| node.id).collect();
        self.shares.iter().map(ids).collect()
    }

    /// Merges the statistics of all tasks of all ranks, of which this rank has `tasks`: the same number of each for
    /// every block. `merge` adds those on the right.
    pub(super) fn reduce(
        &self,
        tasks: Vec<Vec<f64>>,
        merge: impl Fn(&mut [f64], &[f64]),
    ) -> Vec<f64> {
        let merge = |left: &mut Vec<f64>, right: Vec<f64>| merge(left, &right);
        let tree = self.tree(tasks.len() / self.blocks().len());
        let leaves = tree.nodes(self.blocks(), u32::MAX);
        let mut nodes = fold(leaves.iter().map(|leaf| leaf.id).zip(tasks), merge);
        if self.is_divided() {
            let width = nodes[0].1.len();
            let bytes: Vec<u8> = nodes
                .iter()
                .flat_map(|(_, node)| node)
                .flat_map(|value| value.to_le_bytes())
                .collect();
            let ids = self.ids(tree).into_iter().zip(self.comm.gather(&bytes));
            let numbers = |bytes: &[u8]| -> Vec<f64> {
                bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
            };
            let all = ids.flat_map(|(ids, bytes)| {
                let nodes: Vec<_> = bytes.chunks_exact(8 * width).map(numbers).collect();
                ids.into_iter().zip(nodes)
            });
            nodes = fold(all, merge);
        }
        nodes.swap_remove(0).1
    }

    /// The tasks of this rank by the partial sums that they add to, of which there are about `parts` in the batch:
    /// a power of two.
    pub(super) fn parts(&self, sections: usize, parts: usize) -> Vec<Node> {
        let start = self.blocks().start * sections;
        let nodes = self.tree(sections).nodes(self.blocks(), parts.ilog2()).into_iter();
        nodes
            .map(|Node { id, leaves }| Node {
                id,
                leaves: leaves.start - start..leaves.end - start,
            })
            .collect()
    }

    /// The number of nodes that this rank adds by itself.
    pub(super) fn nodes(&self, sections: usize) -> usize {
        self.tree(sections).nodes(self.blocks(), 0).len()
    }

    /// The sum over all ranks of vectors of `len` numbers: one for each node that this rank adds by itself.
    pub(super) fn sum(&self, sections: usize, nodes: &[f32], len: usize) -> Vec<f32> {
        sum(&*self.comm, nodes, len, &self.ids(self.tree(sections)))
    }
}

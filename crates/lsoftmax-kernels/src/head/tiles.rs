//! How the classes are divided: into tiles, and the tiles into blocks that go in parallel.
//!
//! The division depends on the sizes alone, never on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::{Problem, STASH_BYTES};
use crate::buffer::Buffer;
use crate::kernel::{Extent, Kernel, Word, product, right_len};
use crate::softmax::{LANES, add_to_rows};

/// Working memory of a block of tiles, at most (but for one tile).
const BLOCK_BYTES: usize = 8 << 20;
/// Multiply-adds below which waking other threads costs more than it brings.
const WORTH_SHARING: usize = 1 << 21;

/// The division of a problem.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub classes: usize,
    /// Classes of a tile; the last may have fewer.
    pub tile: usize,
    /// Tiles of a block.
    pub block: usize,
    /// Samples, rounded up to whole columns.
    pub width: usize,
    /// Classes whose logits are kept; whole tiles.
    pub stashed: usize,
    pub parallel: bool,
}

impl Plan {
    pub fn new<K: Kernel>(problem: &Problem<'_>) -> Self {
        let width = problem.samples().next_multiple_of(K::COLS.max(LANES));
        let parallel = problem.work() >= WORTH_SHARING;
        // Few classes are cut finer, so that all threads have some.
        let panels = if parallel { (problem.classes / (16 * K::ROWS)).clamp(2, 8) } else { 8 };
        let tile = (panels * K::ROWS).next_multiple_of(2);
        let tile_bytes = 4 * tile * (width + problem.depth.next_multiple_of(K::COLS));
        let block = (BLOCK_BYTES / tile_bytes).clamp(1, 64);
        let stash_tiles = STASH_BYTES / (4 * tile * width);
        Self {
            classes: problem.classes,
            tile,
            block,
            width,
            stashed: (stash_tiles * tile).min(problem.classes),
            parallel,
        }
    }

    pub fn tiles(&self) -> usize {
        self.classes.div_ceil(self.tile)
    }

    /// The tiles of every block, in order.
    pub fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (tiles, block) = (self.tiles(), self.block);
        (0..tiles).step_by(block).map(move |start| start..(start + block).min(tiles))
    }

    /// The classes of a tile.
    pub fn class_range(&self, tile: usize) -> Range<usize> {
        tile * self.tile..((tile + 1) * self.tile).min(self.classes)
    }

    /// Where a tile's logits are kept, if they are.
    pub fn stash_range(&self, tile: usize) -> Option<Range<usize>> {
        let classes = self.class_range(tile);
        (classes.end <= self.stashed)
            .then_some(classes.start * self.width..classes.end * self.width)
    }

    /// Runs `f` on every task, in parallel where that is worth it.
    pub fn each<T: Send, S>(
        &self,
        tasks: Vec<T>,
        scratch: impl Fn() -> S + Sync + Send,
        f: impl Fn(&mut S, T) + Sync + Send,
    ) {
        if self.parallel && tasks.len() > 1 {
            tasks.into_par_iter().for_each_init(scratch, f);
        } else {
            let mut scratch = scratch();
            tasks.into_iter().for_each(|task| f(&mut scratch, task));
        }
    }
}

/// The samples as columns, their features as depth: the right operand of the logits.
pub(super) fn pack_samples<K: Kernel>(kernel: K, problem: &Problem<'_>, plan: &Plan) -> Buffer {
    let depth = problem.depth;
    pack::<K>(plan, depth, problem.samples(), |panel, words| {
        let start = panel * K::COLS * depth;
        let end = problem.features.len().min(start + K::COLS * depth);
        kernel.pack_right_transposed(&problem.features[start..end], depth, words);
    })
}

/// The features as columns, the samples as depth: the right operand of the weights' gradient.
pub(super) fn pack_features<K: Kernel>(kernel: K, problem: &Problem<'_>, plan: &Plan) -> Buffer {
    pack::<K>(plan, problem.samples(), problem.depth, |panel, words| {
        kernel.pack_right(problem.features, problem.depth, panel, words);
    })
}

/// Packs a right operand panel by panel.
fn pack<K: Kernel>(
    plan: &Plan,
    depth: usize,
    cols: usize,
    pack: impl Fn(usize, &mut [K::Word]) + Sync + Send,
) -> Buffer {
    let mut words = Buffer::new(right_len::<K>(depth, cols));
    let panel = right_len::<K>(depth, K::COLS);
    let tasks: Vec<_> = words.words_mut().chunks_exact_mut(panel).enumerate().collect();
    plan.each(tasks, || (), |(), (index, words)| pack(index, words));
    words
}

/// Samples in the order of their labels, so that a tile's own samples stand together.
pub(super) struct ByLabel {
    order: Vec<u32>,
    /// Where each tile's samples start; one more than there are tiles.
    starts: Vec<usize>,
}

impl ByLabel {
    pub fn new(labels: &[u32], plan: &Plan) -> Self {
        let mut order: Vec<u32> = (0..labels.len() as u32).collect();
        order.sort_by_key(|sample| labels[*sample as usize]);
        let starts = (0..=plan.tiles())
            .map(|tile| {
                order.partition_point(|s| (labels[*s as usize] as usize) < tile * plan.tile)
            })
            .collect();
        Self { order, starts }
    }

    /// The samples whose class is in the tile, by class, then by number.
    pub fn of_tile(&self, tile: usize) -> &[u32] {
        &self.order[self.starts[tile]..self.starts[tile + 1]]
    }

    pub fn order(&self) -> &[u32] {
        &self.order
    }
}

/// The logits of a tile's classes for all samples, W·x + b, one row a class.
pub(super) fn tile_logits<K: Kernel>(
    kernel: K,
    problem: &Problem<'_>,
    classes: Range<usize>,
    samples_right: &[K::Word],
    words: &mut Buffer,
    logits: &mut [f32],
    width: usize,
) {
    let weights = &problem.weights[classes.start * problem.depth..classes.end * problem.depth];
    let extent = Extent {
        rows: classes.len(),
        cols: width.min(problem.samples().next_multiple_of(K::COLS)),
        depth: problem.depth.div_ceil(K::Word::ELEMENTS),
    };
    let left = kernel.left_rows(weights, problem.depth, words);
    product(kernel, left, samples_right, extent, logits, width, false);
    if let Some(bias) = problem.bias {
        kernel.vectorize(
            #[inline(always)]
            || add_to_rows(logits, width, &bias[classes]),
        );
    }
}

/// Takes every label's own logit out of a tile: what is left are the other classes.
pub(super) fn mask_labels(
    problem: &Problem<'_>,
    plan: &Plan,
    by_label: &ByLabel,
    tile: usize,
    logits: &mut [f32],
) {
    let first = plan.class_range(tile).start;
    for sample in by_label.of_tile(tile) {
        let sample = *sample as usize;
        let row = problem.labels[sample] as usize - first;
        logits[row * plan.width + sample] = f32::NEG_INFINITY;
    }
}

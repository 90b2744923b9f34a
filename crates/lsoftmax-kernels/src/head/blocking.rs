//! Division of the classes into blocks, and of the blocks into groups that are computed in parallel.
//!
//! The division depends only on the sizes, never on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::bf16_weights::BlockWeights;
use super::{HeadProblem, SAVED_LOGITS_BYTES};
use crate::buffer::Buffer;
use crate::kernel::{Kernel, OperandWord, Output, ProductShape, product, right_len};
use crate::softmax::{LANES, add_to_rows, scale_rows};

/// Maximum working memory of a group; a group has at least one block.
const GROUP_BYTES: usize = 8 << 20;
/// The most runs of blocks in the backward pass.
const MAX_RUNS: usize = 16;
/// Blocks of a run, if there are so many: adding the sums of the runs should cost little beside the runs.
const MIN_RUN_BLOCKS: usize = 3;
/// The most bytes of their features' gradients, if there are more than two.
const RUN_BYTES: usize = 8 << 20;
/// Multiply-adds below which waking other threads costs more than it gains.
const MIN_PARALLEL_WORK: usize = 1 << 21;

/// Samples of a part are a multiple of this, so that all panels but the last are whole.
const PART_SAMPLES: usize = 64;
/// The most parts of the samples.
const MAX_SAMPLE_PARTS: usize = 16;

/// Divides the samples into parts, each of them a task. Only one if the classes make enough tasks.
pub(super) fn sample_parts<K: Kernel>(problem: &HeadProblem<'_>) -> Vec<Range<usize>> {
    let samples = problem.samples();
    let parts = match BlockPlan::new::<K>(problem).blocks() {
        1 => (problem.work() / MIN_PARALLEL_WORK).clamp(1, MAX_SAMPLE_PARTS),
        _ => 1,
    };
    let size = samples.div_ceil(parts).next_multiple_of(PART_SAMPLES);
    (0..samples).step_by(size).map(|start| start..(start + size).min(samples)).collect()
}

/// Runs `f` on a thread of the pool if it will share its work with others: a parallel loop that is started
/// elsewhere wakes a thread of the pool and waits for it, every time.
pub(super) fn in_pool<R: Send>(problem: &HeadProblem<'_>, f: impl FnOnce() -> R + Send) -> R {
    if problem.work() < MIN_PARALLEL_WORK { f() } else { rayon::scope(|_| f()) }
}

/// The division of a problem's classes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlan {
    pub classes: usize,
    /// Classes per block; the last block may have fewer.
    pub block_classes: usize,
    /// Blocks per group; the last group may have fewer.
    pub group_blocks: usize,
    /// The number of samples, rounded up to whole panels and vectors.
    pub width: usize,
    /// The number of classes, in whole blocks, whose logits are saved for the backward pass.
    pub saved_classes: usize,
    pub parallel: bool,
}

impl BlockPlan {
    pub fn new<K: Kernel>(problem: &HeadProblem<'_>) -> Self {
        let width = problem.samples().next_multiple_of(K::NR.max(LANES));
        let parallel = problem.work() >= MIN_PARALLEL_WORK;
        // Blocks are smaller when there are few classes, so that all threads have work.
        let panels = if parallel { (problem.classes / (16 * K::MR)).clamp(2, 8) } else { 8 };
        let block_classes = (panels * K::MR).next_multiple_of(2);
        let block_bytes = 4 * block_classes * (width + problem.depth.next_multiple_of(K::NR));
        let group_blocks = (GROUP_BYTES / block_bytes).clamp(1, 64);
        let saved_blocks = SAVED_LOGITS_BYTES / (4 * block_classes * width);
        Self {
            classes: problem.classes,
            block_classes,
            group_blocks,
            width,
            saved_classes: (saved_blocks * block_classes).min(problem.classes),
            parallel,
        }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.classes.div_ceil(self.block_classes)
    }

    /// The blocks of each group, in order.
    pub fn groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (blocks, size) = (self.blocks(), self.group_blocks);
        (0..blocks).step_by(size).map(move |start| start..(start + size).min(blocks))
    }

    /// The runs of blocks of the backward pass, each with its own sum of a features' gradient of `len` floats.
    pub fn runs(&self, len: usize) -> Vec<Range<usize>> {
        let blocks = self.blocks();
        let most = (RUN_BYTES / (4 * len.max(1))).clamp(2, MAX_RUNS);
        let runs = if self.parallel { (blocks / MIN_RUN_BLOCKS).clamp(1, most) } else { 1 };
        (0..runs).map(|run| run * blocks / runs..(run + 1) * blocks / runs).collect()
    }

    /// The classes of a block.
    pub fn class_range(&self, block: usize) -> Range<usize> {
        block * self.block_classes..((block + 1) * self.block_classes).min(self.classes)
    }

    /// Where a block's logits are saved, if they are.
    pub fn saved_range(&self, block: usize) -> Option<Range<usize>> {
        let classes = self.class_range(block);
        (classes.end <= self.saved_classes)
            .then_some(classes.start * self.width..classes.end * self.width)
    }

    /// Runs `f` on every task, in parallel if there is enough work.
    pub fn for_each<T: Send, S>(
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
pub(super) fn pack_samples<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    plan: &BlockPlan,
) -> Buffer {
    let depth = problem.depth;
    pack::<K>(plan, depth, problem.samples(), |panel, words| {
        let start = panel * K::NR * depth;
        let end = problem.features.len().min(start + K::NR * depth);
        kernel.pack_right_transposed(&problem.features[start..end], depth, words);
    })
}

/// The features as columns, the samples as depth: the right operand of the weights' gradient.
pub(super) fn pack_features<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    plan: &BlockPlan,
) -> Buffer {
    pack::<K>(plan, problem.samples(), problem.depth, |panel, words| {
        kernel.pack_right(problem.features, problem.depth, panel, words);
    })
}

/// Packs a right operand panel by panel.
fn pack<K: Kernel>(
    plan: &BlockPlan,
    depth: usize,
    cols: usize,
    pack: impl Fn(usize, &mut [K::Word]) + Sync + Send,
) -> Buffer {
    let mut words = Buffer::new(right_len::<K>(depth, cols));
    let panel = right_len::<K>(depth, K::NR);
    let tasks: Vec<_> = words.words_mut().chunks_exact_mut(panel).enumerate().collect();
    plan.for_each(tasks, || (), |(), (index, words)| pack(index, words));
    words
}

/// Samples sorted by label, so that the samples of a block's classes are contiguous.
pub(super) struct SamplesByLabel {
    order: Vec<u32>,
    /// Where each block's samples start, and the number of samples.
    starts: Vec<usize>,
}

impl SamplesByLabel {
    pub fn new(labels: &[u32], plan: &BlockPlan) -> Self {
        let mut order: Vec<u32> = (0..labels.len() as u32).collect();
        order.sort_by_key(|sample| labels[*sample as usize]);
        let starts = (0..=plan.blocks())
            .map(|block| {
                order.partition_point(|s| {
                    (labels[*s as usize] as usize) < block * plan.block_classes
                })
            })
            .collect();
        Self { order, starts }
    }

    /// The samples whose label is in the block, ordered by label, then by index.
    pub fn in_block(&self, block: usize) -> &[u32] {
        &self.order[self.starts[block]..self.starts[block + 1]]
    }

    /// All samples, ordered by label, then by index.
    pub fn order(&self) -> &[u32] {
        &self.order
    }
}

/// A block's classes and weights.
pub(super) struct Block<'a> {
    pub classes: Range<usize>,
    pub weights: BlockWeights<'a>,
    /// 1/|W| of these classes; not read unless weights are normalised.
    pub scales: &'a [f32],
}

/// The logits of a block's classes for all samples, W·x + b, one row per class.
pub(super) fn block_logits<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    block: Block<'_>,
    samples_right: &[K::Word],
    words: &mut Buffer,
    logits: &mut [f32],
    width: usize,
) {
    let Block { classes, weights, scales } = block;
    let shape = ProductShape {
        rows: classes.len(),
        cols: width.min(problem.samples().next_multiple_of(K::NR)),
        depth: problem.depth.div_ceil(K::Word::ELEMENTS),
    };
    let left = weights.left(kernel, problem.depth, words);
    product(kernel, left, samples_right, shape, logits, width, Output::Overwrite);
    if problem.normalised_weights {
        kernel.vectorize(
            #[inline(always)]
            || scale_rows(logits, width, scales),
        );
    }
    if let Some(bias) = problem.bias {
        kernel.vectorize(
            #[inline(always)]
            || add_to_rows(logits, width, &bias[classes]),
        );
    }
}

/// Replaces the logits of the samples' labels in a block by −∞, which leaves the other classes.
pub(super) fn mask_labels(
    problem: &HeadProblem<'_>,
    plan: &BlockPlan,
    by_label: &SamplesByLabel,
    block: usize,
    logits: &mut [f32],
) {
    let first = plan.class_range(block).start;
    for sample in by_label.in_block(block) {
        let sample = *sample as usize;
        let row = problem.labels[sample] as usize - first;
        logits[row * plan.width + sample] = f32::NEG_INFINITY;
    }
}

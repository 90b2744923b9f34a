//! The forward pass: an online log-sum-exp over blocks of classes.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::HeadProblem;
use super::bf16_weights::{Bf16Weights, BlockWeights};
use super::blocking::{
    Block, BlockPlan, SamplesByLabel, block_logits, in_pool, mask_labels, pack_samples,
    sample_parts,
};
use super::label::{Geometry, geometry};
use crate::buffer::Buffer;
use crate::engine::{Engine, Precision, with_kernel};
use crate::kernel::{Bf16Pair, Kernel};
use crate::softmax::{max_and_sum, merge, sum_of_squares};

/// The forward pass's results for one sample. If its label is [`ELSEWHERE`](super::ELSEWHERE), all classes are other
/// ones, and the rest is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSample {
    /// The angle between the sample and its class, and their norms.
    pub geometry: Geometry,
    /// The label's logit without a margin, W_y·x + b_y, as computed by the matrix product.
    pub plain: f32,
    /// The log-sum-exp of the other classes' logits; −∞ when there is no other class.
    pub others_lse: f64,
    /// The largest of the other classes' logits; −∞ when there is no other class.
    pub others_max: f32,
    /// Whether the label is the first class with the largest logit, without a margin.
    pub correct: bool,
}

/// The result of [`forward`], which [`backward`](super::backward()) needs.
#[derive(Clone, Debug)]
pub struct HeadForward {
    /// One per sample.
    pub samples: Vec<HeadSample>,
    /// The smallest and the largest |W_j|. One of them is not finite if a weight is not.
    pub weight_norms: (f32, f32),
    /// The copy of the weights that the pass made or was given. None unless the engine keeps one, and with so
    /// few classes that it would be of no use.
    pub bf16_weights: Option<Arc<Bf16Weights>>,
    pub(super) engine: Engine,
    /// 1/|W_j| of every class, 0 where W_j is zero; empty unless weights are normalised, or if the copy has it.
    class_scales: Vec<f32>,
    /// Of each part of the samples.
    pub(super) parts: Vec<SamplesForward>,
}

/// What the backward pass needs of some samples.
#[derive(Clone, Debug)]
pub(super) struct SamplesForward {
    pub range: Range<usize>,
    /// Logits of the first classes, those of the labels replaced by −∞.
    pub saved_logits: Buffer,
}

impl HeadForward {
    /// The engine that computed the forward pass, and will compute the backward pass.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// 1/|W_j| of every class; empty if it is not needed.
    pub(super) fn class_scales(&self) -> &[f32] {
        self.bf16_weights.as_ref().map_or(&self.class_scales, |copy| &copy.scales)
    }
}

/// A sample's label logit, and its competitors in the same block.
#[derive(Clone, Copy)]
struct LabelLogit {
    plain: f32,
    /// The largest logit of the block's classes before the label.
    before: f32,
    /// The largest logit of the block's classes after the label.
    after: f32,
}

impl LabelLogit {
    /// Of a sample whose label is elsewhere.
    const NONE: Self = Self { plain: 0.0, before: f32::NEG_INFINITY, after: f32::NEG_INFINITY };
}

/// One block of classes, and where its results go.
struct ForwardTask<'a> {
    block: usize,
    labels: &'a mut [LabelLogit],
    max: &'a mut [f32],
    sum: &'a mut [f32],
    norms: &'a mut (f32, f32),
    scales: &'a mut [f32],
    /// Where to keep the weights in bf16, if they are kept.
    rows: Option<&'a mut [Bf16Pair]>,
    saved_logits: Option<&'a mut [f32]>,
}

/// Computes the forward pass. If a backward pass will follow, `save_logits` spares it from computing
/// logits again.
pub fn forward(engine: Engine, problem: &HeadProblem<'_>, save_logits: bool) -> HeadForward {
    in_pool(problem, || {
        with_kernel!(engine, |kernel| run_parts(kernel, engine, problem, save_logits))
    })
}

/// Computes every part of the samples by itself.
fn run_parts<K: Kernel>(
    kernel: K,
    engine: Engine,
    problem: &HeadProblem<'_>,
    save_logits: bool,
) -> HeadForward {
    let ranges = sample_parts::<K>(problem);
    if ranges.len() == 1 {
        return run(kernel, engine, problem, save_logits);
    }
    let parts = ranges.into_par_iter().map(|range| {
        let mut part = run(kernel, engine, &problem.of_samples(&range), save_logits);
        part.parts[0].range = range;
        part
    });
    let merged = parts.collect::<Vec<_>>().into_iter().reduce(|mut all, part| {
        all.samples.extend(part.samples);
        all.parts.extend(part.parts);
        all
    });
    merged.expect("there is at least one sample")
}

fn run<K: Kernel>(
    kernel: K,
    engine: Engine,
    problem: &HeadProblem<'_>,
    save_logits: bool,
) -> HeadForward {
    let plan = BlockPlan::new::<K>(problem);
    let by_label = SamplesByLabel::new(problem.labels, &plan);
    let samples_right = pack_samples(kernel, problem, &plan);
    let (classes, width) = (problem.classes, plan.width);
    let given = problem.bf16_weights(engine);
    // The weights of a single block are rounded in no time, and its samples may be divided among threads.
    let keeps =
        engine.precision() == Precision::Bf16Weights && plan.blocks() > 1 && given.is_none();
    let stride = K::bf16_stride(problem.depth);
    let mut rows = Buffer::new(if keeps { classes * stride } else { 0 });
    let mut rows_left = rows.words_mut();
    let needs_scales = given.is_none() && (keeps || problem.normalised_weights);
    let mut class_scales = vec![0.0; if needs_scales { classes } else { 0 }];
    let mut scales_left = class_scales.as_mut_slice();
    let mut saved_logits = Buffer::new(if save_logits { plan.saved_classes * width } else { 0 });
    let mut saved_left = &mut saved_logits[..];
    let mut labels = vec![LabelLogit::NONE; problem.samples()];
    let mut labels_left = labels.as_mut_slice();
    let mut running = RunningLogSumExp::new(problem, &plan);
    let mut norms = given.map_or(NO_NORMS, |copy| copy.norms);
    let mut partial = vec![0.0f32; 2 * width * plan.group_blocks];
    let mut block_norms = vec![NO_NORMS; plan.group_blocks];
    let pass = HeadForwardPass {
        kernel,
        problem,
        plan,
        by_label: &by_label,
        samples_right: samples_right.words(),
        bf16_weights: given.map(|copy| &**copy),
    };

    for group in plan.groups() {
        let mut tasks = Vec::with_capacity(group.len());
        let parts = partial.chunks_exact_mut(2 * width).zip(&mut block_norms);
        for (block, (part, norms)) in group.clone().zip(parts) {
            let (max, sum) = part.split_at_mut(width);
            let own = labels_left.split_off_mut(..by_label.in_block(block).len());
            let saved_logits = plan
                .saved_range(block)
                .filter(|_| save_logits)
                .and_then(|range| saved_left.split_off_mut(..range.len()));
            let classes = plan.class_range(block).len();
            tasks.push(ForwardTask {
                block,
                labels: own.unwrap_or_default(),
                max,
                sum,
                norms,
                scales: scales_left.split_off_mut(..classes).unwrap_or_default(),
                rows: rows_left.split_off_mut(..classes * stride),
                saved_logits,
            });
        }
        plan.for_each(tasks, ForwardScratch::default, |scratch, task| pass.block(scratch, task));
        let parts = partial.chunks_exact(2 * width).zip(&block_norms);
        for (block, (part, block_norms)) in group.zip(parts) {
            let (max, sum) = part.split_at(width);
            running.add(kernel, block as u32, max, sum);
            norms = merge_norms(norms, *block_norms);
        }
    }

    let mut samples = geometries(kernel, problem, &plan, &running);
    // Those whose label is elsewhere come last.
    for (index, label) in by_label.order().iter().zip(&labels) {
        let index = *index as usize;
        let (before, after) = running.competitors(index, label);
        let sample = &mut samples[index];
        sample.others_max = before.max(after);
        if problem.label(index).is_some() {
            sample.plain = label.plain;
            sample.correct = before < label.plain && after <= label.plain;
        }
    }
    let parts = vec![SamplesForward { range: 0..problem.samples(), saved_logits }];
    let bf16_weights = if keeps {
        let (depth, scales) = (problem.depth, std::mem::take(&mut class_scales));
        Some(Arc::new(Bf16Weights { engine, depth, stride, rows, scales, norms }))
    } else {
        given.cloned()
    };
    HeadForward { samples, weight_norms: norms, engine, class_scales, bf16_weights, parts }
}

/// Working memory of a thread.
#[derive(Default)]
struct ForwardScratch {
    words: Buffer,
    logits: Buffer,
}

/// The forward pass of a head.
struct HeadForwardPass<'a, K: Kernel> {
    kernel: K,
    problem: &'a HeadProblem<'a>,
    plan: BlockPlan,
    by_label: &'a SamplesByLabel,
    samples_right: &'a [K::Word],
    /// A copy of the weights that was made earlier.
    bf16_weights: Option<&'a Bf16Weights>,
}

impl<K: Kernel> HeadForwardPass<'_, K> {
    fn block(&self, scratch: &mut ForwardScratch, task: ForwardTask<'_>) {
        let Self { kernel, problem, plan, by_label, .. } = *self;
        let (classes, width) = (plan.class_range(task.block), plan.width);
        let ForwardScratch { words, logits } = scratch;
        let logits = match task.saved_logits {
            Some(saved_logits) => saved_logits,
            None => {
                logits.resize(classes.len() * width);
                logits
            }
        };
        *task.norms = NO_NORMS;
        let (weights, scales) = if let Some(copy) = self.bf16_weights {
            *task.norms = copy.norms;
            (BlockWeights::Bf16(copy.rows(&classes)), &copy.scales[classes.clone()])
        } else {
            let own = problem.weights_of(&classes);
            for (index, weight) in own.chunks_exact(problem.depth).enumerate() {
                let norm = norm(kernel, weight);
                *task.norms = merge_norms(*task.norms, (norm, norm));
                if let Some(scale) = task.scales.get_mut(index) {
                    *scale = if norm == 0.0 { 0.0 } else { norm.recip().min(f32::MAX) };
                }
            }
            let weights = match task.rows {
                Some(rows) => {
                    kernel.round_rows(own, problem.depth, rows);
                    BlockWeights::Bf16(rows)
                }
                None => BlockWeights::F32(own),
            };
            (weights, &*task.scales)
        };
        let block = Block { classes: classes.clone(), weights, scales };
        block_logits(kernel, problem, block, self.samples_right, words, logits, width);

        for (sample, label) in by_label.in_block(task.block).iter().zip(task.labels) {
            let sample = *sample as usize;
            let row = problem.labels[sample] as usize - classes.start;
            let column = |row: usize| logits[row * width + sample];
            let largest = |rows: Range<usize>| rows.map(column).fold(f32::NEG_INFINITY, f32::max);
            *label = LabelLogit {
                plain: column(row),
                before: largest(0..row),
                after: largest(row + 1..classes.len()),
            };
        }
        mask_labels(problem, &plan, by_label, task.block, logits);
        kernel.vectorize(
            #[inline(always)]
            || max_and_sum::<K::Simd>(logits, width, task.max, task.sum),
        );
    }
}

/// Each sample's log-sum-exp and maxima over the blocks merged so far, without its label.
struct RunningLogSumExp {
    max: Vec<f32>,
    sum: Vec<f32>,
    /// The largest logits in blocks before the label's block.
    before: Vec<f32>,
    /// The largest logits in blocks after the label's block.
    after: Vec<f32>,
    /// The block of each sample's label.
    label_block: Vec<u32>,
}

impl RunningLogSumExp {
    fn new(problem: &HeadProblem<'_>, plan: &BlockPlan) -> Self {
        let mut label_block: Vec<u32> =
            problem.labels.iter().map(|label| label / plan.block_classes as u32).collect();
        label_block.resize(plan.width, 0);
        let none = vec![f32::NEG_INFINITY; plan.width];
        Self {
            max: none.clone(),
            sum: vec![0.0; plan.width],
            before: none.clone(),
            after: none,
            label_block,
        }
    }

    fn add<K: Kernel>(&mut self, kernel: K, block: u32, max: &[f32], sum: &[f32]) {
        kernel.vectorize(
            #[inline(always)]
            || {
                merge::<K::Simd>(&mut self.max, &mut self.sum, max, sum);
                let competitors = self.before.iter_mut().zip(&mut self.after);
                for (((before, after), own), max) in competitors.zip(&self.label_block).zip(max) {
                    let earlier = block < *own && *max > *before;
                    let later = block > *own && *max > *after;
                    *before = if earlier { *max } else { *before };
                    *after = if later { *max } else { *after };
                }
            },
        );
    }

    /// The largest logits of the classes before and after a sample's label.
    fn competitors(&self, sample: usize, label: &LabelLogit) -> (f32, f32) {
        (self.before[sample].max(label.before), self.after[sample].max(label.after))
    }

    fn others_lse(&self, sample: usize) -> f64 {
        f64::from(self.max[sample]) + f64::from(self.sum[sample]).ln()
    }
}

/// Each sample's geometry and log-sum-exp; the caller fills in the other fields.
fn geometries<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    plan: &BlockPlan,
    running: &RunningLogSumExp,
) -> Vec<HeadSample> {
    const CHUNK: usize = 32;
    let empty = HeadSample {
        geometry: Geometry { dot: 0.0, feature_norm: 0.0, weight_norm: 0.0 },
        plain: 0.0,
        others_lse: 0.0,
        others_max: 0.0,
        correct: false,
    };
    let mut samples = vec![empty; problem.samples()];
    let tasks: Vec<_> = samples.chunks_mut(CHUNK).enumerate().collect();
    plan.for_each(
        tasks,
        || (),
        |(), (chunk, samples)| {
            for (offset, out) in samples.iter_mut().enumerate() {
                let sample = chunk * CHUNK + offset;
                if let Some(class) = problem.label(sample) {
                    out.geometry = geometry(kernel, problem.feature(sample), problem.weight(class));
                }
                out.others_lse = running.others_lse(sample);
            }
        },
    );
    samples
}

/// The range of no norms.
const NO_NORMS: (f32, f32) = (f32::INFINITY, 0.0);

/// The union of two (min, max) ranges. A NaN is kept.
fn merge_norms(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    let pick = |a: f32, b: f32, first: bool| if a.is_nan() || first { a } else { b };
    (pick(a.0, b.0, a.0 < b.0), pick(a.1, b.1, a.1 > b.1))
}

/// |w|, computed in f32 where that neither overflows nor loses digits.
fn norm<K: Kernel>(kernel: K, weight: &[f32]) -> f32 {
    let square = kernel.vectorize(
        #[inline(always)]
        || sum_of_squares(weight),
    );
    // Outside this range f32 squares may have overflowed or underflowed.
    if (1e-20..1e30).contains(&square) {
        square.sqrt()
    } else {
        geometry(kernel, weight, weight).weight_norm as f32
    }
}

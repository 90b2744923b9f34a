//! The backward pass: logits again where they were not kept, then both gradients.
//!
//! Every output element is summed by one task in one order. A block of tiles goes in two steps:
//! first each tile's weights' gradient (its rows belong to the tile alone), then the features'
//! gradient, for which each task owns some samples and adds the whole block.

use super::label::LabelGradient;
use super::tiles::{ByLabel, Plan, mask_labels, pack_features, pack_samples, tile_logits};
use super::{Forward, Problem};
use crate::buffer::Buffer;
use crate::kernel::{Extent, Kernel, Left, Word, product, right_len};
use crate::path::with_kernel;
use crate::softmax::{finite_or_zero, probabilities, row_sums};

/// Which gradients are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The features'.
    pub features: bool,
    /// The weights'.
    pub weights: bool,
    /// The bias's.
    pub bias: bool,
}

/// The gradients, in the layout of what they are gradients of; empty where not wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients {
    /// ∂L/∂x.
    pub features: Buffer,
    /// ∂L/∂W.
    pub weights: Buffer,
    /// ∂L/∂b.
    pub bias: Buffer,
}

/// Runs the backward pass.
///
/// `upstream` is ∂L/∂(loss of sample i), `lse` the log-sum-exp over all classes with the label's
/// logit as the caller made it, and `labels` the derivatives through that logit.
///
/// # Panics
/// When `forward` or a slice is not of `problem`'s number of samples.
pub fn backward(
    problem: &Problem<'_>,
    forward: &Forward,
    upstream: &[f32],
    lse: &[f64],
    labels: &[LabelGradient],
    wanted: Wanted,
) -> Gradients {
    let lengths = [forward.samples.len(), upstream.len(), lse.len(), labels.len()];
    assert_eq!(lengths, [problem.samples(); 4], "one entry a sample");
    with_kernel!(forward.engine, run(problem, forward, upstream, lse, labels, wanted))
}

struct Task<'a> {
    tile: usize,
    weights: &'a mut [f32],
    bias: &'a mut [f32],
    kept: &'a mut Kept,
}

/// A tile's operands for the features' gradient: the softmax by columns, and the weights.
#[derive(Default)]
struct Kept {
    columns: Buffer,
    steps: (usize, usize),
    depth: usize,
    right: Buffer,
}

#[derive(Default)]
struct Scratch {
    words: Buffer,
    logits: Buffer,
    softmax: Buffer,
}

fn run<K: Kernel>(
    kernel: K,
    problem: &Problem<'_>,
    forward: &Forward,
    upstream: &[f32],
    lse: &[f64],
    labels: &[LabelGradient],
    wanted: Wanted,
) -> Gradients {
    let plan = Plan::new::<K>(problem);
    // A probability is e^(z − max) · e^(max − lse). With lse for max it would be one factor less, but
    // lse rounded to f32 is off by 2⁻²⁴ of itself, and p by as much for every unit.
    let maxima = || forward.samples.iter().map(|sample| sample.others_max);
    let rest = maxima().zip(lse).map(|(max, lse)| (f64::from(max) - lse).exp());
    let scale =
        upstream.iter().zip(rest).map(|(upstream, rest)| (f64::from(*upstream) * rest) as f32);
    let pass = Pass {
        kernel,
        problem,
        plan,
        by_label: ByLabel::new(problem.labels, &plan),
        stash: &forward.stash,
        labels,
        wanted,
        // Columns past the last sample get a probability of zero.
        shift: padded(maxima().map(finite_or_zero), plan.width, f32::MAX),
        scale: padded(scale, plan.width, 0.0),
        samples_right: match forward.stash.len() < problem.classes * plan.width {
            true => pack_samples(kernel, problem, &plan),
            false => Buffer::default(),
        },
        features_right: match wanted.weights {
            true => pack_features(kernel, problem, &plan),
            false => Buffer::default(),
        },
    };
    pass.run()
}

fn padded(values: impl Iterator<Item = f32>, width: usize, padding: f32) -> Vec<f32> {
    let mut values: Vec<f32> = values.collect();
    values.resize(width, padding);
    values
}

struct Pass<'a, K: Kernel> {
    kernel: K,
    problem: &'a Problem<'a>,
    plan: Plan,
    by_label: ByLabel,
    stash: &'a [f32],
    labels: &'a [LabelGradient],
    wanted: Wanted,
    shift: Vec<f32>,
    scale: Vec<f32>,
    samples_right: Buffer,
    features_right: Buffer,
}

impl<K: Kernel> Pass<'_, K> {
    fn run(&self) -> Gradients {
        let (plan, depth, wanted) = (&self.plan, self.problem.depth, self.wanted);
        let buffer = |wanted: bool, len| Buffer::new(if wanted { len } else { 0 });
        let mut features = buffer(wanted.features, self.problem.features.len());
        let mut weights = buffer(wanted.weights, self.problem.weights.len());
        let mut bias = buffer(wanted.bias, plan.classes);
        self.start_features(&mut features);

        let mut kept: Vec<Kept> = Vec::new();
        kept.resize_with(plan.block.min(plan.tiles()), Kept::default);
        let (mut weights_left, mut bias_left) = (&mut weights[..], &mut bias[..]);
        for block in plan.blocks() {
            let mut tasks = Vec::with_capacity(block.len());
            for (tile, kept) in block.clone().zip(&mut kept) {
                let classes = plan.class_range(tile).len();
                let weights = weights_left.split_off_mut(..classes * depth).unwrap_or_default();
                let bias = bias_left.split_off_mut(..classes).unwrap_or_default();
                tasks.push(Task { tile, weights, bias, kept });
            }
            plan.each(tasks, Scratch::default, |scratch, task| self.tile(scratch, task));
            if wanted.features {
                self.add_to_features(&mut features, &kept[..block.len()]);
            }
        }
        Gradients { features, weights, bias }
    }

    /// One tile: its softmax, its weights' and bias's gradient, and what the features' needs.
    fn tile(&self, scratch: &mut Scratch, task: Task<'_>) {
        let Task { tile, weights, bias, kept } = task;
        let (kernel, problem, width) = (self.kernel, self.problem, self.plan.width);
        let Scratch { words, logits, softmax } = scratch;
        let classes = self.plan.class_range(tile);

        let stashed = self.plan.stash_range(tile).and_then(|range| self.stash.get(range));
        let logits = stashed.unwrap_or_else(|| {
            logits.resize(classes.len() * width);
            tile_logits(
                kernel,
                problem,
                classes.clone(),
                self.samples_right.words(),
                words,
                logits,
                width,
            );
            mask_labels(problem, &self.plan, &self.by_label, tile, logits);
            logits
        });
        softmax.resize(classes.len() * width);
        kernel.vectorize(
            #[inline(always)]
            || probabilities::<K::Vectors>(logits, width, &self.shift, &self.scale, softmax),
        );

        if self.wanted.weights {
            let extent = Extent {
                rows: classes.len(),
                cols: problem.depth,
                depth: problem.samples().div_ceil(K::Word::ELEMENTS),
            };
            let left = kernel.left_rows(softmax, width, words);
            product(
                kernel,
                left,
                self.features_right.words(),
                extent,
                weights,
                problem.depth,
                false,
            );
        }
        if self.wanted.bias {
            kernel.vectorize(
                #[inline(always)]
                || row_sums(softmax, width, bias),
            );
        }
        self.add_labels(tile, weights, bias);
        if self.wanted.features {
            let own = &problem.weights[classes.start * problem.depth..classes.end * problem.depth];
            kept.right.resize(right_len::<K>(classes.len(), problem.depth));
            kernel.pack_right(own, problem.depth, 0, kept.right.words_mut());
            kept.columns.resize(K::left_columns_len(classes.len(), width));
            kept.steps = kernel.left_columns(softmax, width, kept.columns.words_mut());
            kept.depth = classes.len().div_ceil(K::Word::ELEMENTS);
        }
    }

    /// The labels' own terms of a tile's weights and bias.
    fn add_labels(&self, tile: usize, weights: &mut [f32], bias: &mut [f32]) {
        let first = self.plan.class_range(tile).start;
        let depth = self.problem.depth;
        for sample in self.by_label.of_tile(tile) {
            let sample = *sample as usize;
            let class = self.problem.labels[sample] as usize;
            let label = &self.labels[sample];
            if self.wanted.weights {
                let own = (label.along_weight, self.problem.weight(class));
                let out = &mut weights[(class - first) * depth..][..depth];
                label.combine(self.kernel, own, self.problem.feature(sample), out, true);
            }
            if self.wanted.bias {
                bias[class - first] += label.logit as f32;
            }
        }
    }

    /// The labels' own terms of the features' gradient, to which the blocks then add.
    fn start_features(&self, features: &mut [f32]) {
        const CHUNK: usize = 16;
        let depth = self.problem.depth;
        let tasks: Vec<_> = features.chunks_mut(CHUNK * depth).enumerate().collect();
        self.plan.each(
            tasks,
            || (),
            |(), (chunk, features)| {
                for (offset, out) in features.chunks_exact_mut(depth).enumerate() {
                    let sample = chunk * CHUNK + offset;
                    let label = &self.labels[sample];
                    let class = self.problem.labels[sample] as usize;
                    let own = (label.along_feature, self.problem.feature(sample));
                    label.combine(self.kernel, own, self.problem.weight(class), out, false);
                }
            },
        );
    }

    fn add_to_features(&self, features: &mut [f32], block: &[Kept]) {
        let depth = self.problem.depth;
        let samples = self.problem.samples();
        let chunks = samples.div_ceil(2 * K::ROWS);
        let rows = samples.div_ceil(chunks);
        let tasks: Vec<_> = features.chunks_mut(rows * depth).enumerate().collect();
        self.plan.each(
            tasks,
            || (),
            |(), (chunk, features)| {
                for tile in block {
                    let (row_step, depth_step) = tile.steps;
                    let words = &tile.columns.words()[chunk * rows * row_step..];
                    let extent =
                        Extent { rows: features.len() / depth, cols: depth, depth: tile.depth };
                    let left = Left { words, row_step, depth_step };
                    product(self.kernel, left, tile.right.words(), extent, features, depth, true);
                }
            },
        );
    }
}

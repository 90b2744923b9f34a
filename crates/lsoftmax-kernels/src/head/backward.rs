//! The backward pass: recomputes the logits that were not saved, then computes the gradients.
//!
//! A task is a run of blocks. For each block it computes the softmax, the gradient of the block's weights,
//! to which no other block contributes, and, while the softmax and the weights are in cache, the block's
//! terms of the features' gradient. Every run has its own sum of those; the runs are added in order.

use std::ops::Range;

use rayon::prelude::*;

use super::bf16_weights::{Bf16Weights, BlockWeights};
use super::blocking::{
    Block, BlockPlan, SamplesByLabel, block_logits, in_pool, mask_labels, pack_features,
    pack_samples,
};
use super::forward::{HeadSample, SamplesForward};
use super::label::{LabelGradient, project};
use super::{HeadForward, HeadProblem};
use crate::buffer::Buffer;
use crate::engine::with_kernel;
use crate::kernel::{
    Kernel, LeftOperand, OperandWord, Output, ProductShape, Simd, product, right_len,
};
use crate::softmax::{finite_or_zero, probabilities, row_sums, scale_rows};

/// Which gradients to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedGradients {
    /// ∂L/∂x.
    pub features: bool,
    /// ∂L/∂W.
    pub weights: bool,
    /// ∂L/∂b.
    pub bias: bool,
}

/// The gradients of a head, each in the layout of its input; empty where not wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadGradients {
    /// ∂L/∂x.
    pub features: Buffer,
    /// ∂L/∂W.
    pub weights: Buffer,
    /// ∂L/∂b.
    pub bias: Buffer,
}

/// Computes the backward pass.
///
/// `upstream` is ∂L/∂(loss of sample i), `lse` the log-sum-exp over all classes including the
/// caller's label logit, and `labels` the derivatives through that logit.
///
/// # Panics
/// When `forward` or a slice has a different number of samples than `problem`.
pub fn backward(
    problem: &HeadProblem<'_>,
    forward: &HeadForward,
    upstream: &[f32],
    lse: &[f64],
    labels: &[LabelGradient],
    wanted: WantedGradients,
) -> HeadGradients {
    let lengths = [forward.samples.len(), upstream.len(), lse.len(), labels.len()];
    assert_eq!(lengths, [problem.samples(); 4], "one entry per sample");
    in_pool(problem, || in_this_pool(problem, forward, upstream, lse, labels, wanted))
}

/// The same on a thread of the pool, if there is enough work for several.
fn in_this_pool(
    problem: &HeadProblem<'_>,
    forward: &HeadForward,
    upstream: &[f32],
    lse: &[f64],
    labels: &[LabelGradient],
    wanted: WantedGradients,
) -> HeadGradients {
    let mut features = Buffer::new(if wanted.features { problem.features.len() } else { 0 });
    let run_part = |part: &SamplesForward, features: &mut [f32]| {
        let range = part.range.clone();
        let terms = SampleTerms {
            samples: &forward.samples[range.clone()],
            upstream: &upstream[range.clone()],
            lse: &lse[range.clone()],
            labels: &labels[range.clone()],
        };
        let problem = &problem.of_samples(&range);
        with_kernel!(forward.engine, |kernel| run(
            kernel, problem, forward, part, terms, wanted, features
        ))
    };
    let [weights, bias] = match &forward.parts[..] {
        [whole] => run_part(whole, &mut features),
        parts => {
            let mut rest = &mut features[..];
            let tasks = parts.iter().map(|part| {
                let own = rest.split_off_mut(..part.range.len() * problem.depth);
                (part, own.unwrap_or_default())
            });
            let tasks: Vec<_> = tasks.collect();
            let found = tasks.into_par_iter().map(|(part, features)| run_part(part, features));
            // The parts are added in order.
            let found = found.collect::<Vec<_>>().into_iter().reduce(|mut sum, part| {
                for (sum, part) in sum.iter_mut().zip(&part) {
                    sum.iter_mut().zip(part.iter()).for_each(|(sum, value)| *sum += value);
                }
                sum
            });
            found.expect("there is at least one sample")
        }
    };
    HeadGradients { features, weights, bias }
}

/// The arguments of [`backward`] that have one entry per sample.
struct SampleTerms<'a> {
    samples: &'a [HeadSample],
    upstream: &'a [f32],
    lse: &'a [f64],
    labels: &'a [LabelGradient],
}

/// A run of blocks of classes, and where its results go.
struct BackwardTask<'a> {
    blocks: Range<usize>,
    weights: &'a mut [f32],
    bias: &'a mut [f32],
    /// The features' gradient of these classes.
    features: &'a mut [f32],
    /// Whether `features` holds something to add it to.
    add: bool,
}

/// Weights' gradients of at least this many bytes are written past the caches.
const STREAMED_BYTES: usize = 16 << 20;

/// Working memory of a thread.
#[derive(Default)]
struct BackwardScratch {
    words: Buffer,
    logits: Buffer,
    softmax: Buffer,
    /// Operands of the features' gradient: the columns of the softmax, and the weights.
    columns: Buffer,
    right: Buffer,
    /// A block of the weights' gradient that is not written in place.
    gradient: Buffer,
}

/// Computes some samples: writes the features' gradient, and returns those of weights and bias.
fn run<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    forward: &HeadForward,
    part: &SamplesForward,
    terms: SampleTerms<'_>,
    wanted: WantedGradients,
    features: &mut [f32],
) -> [Buffer; 2] {
    let SampleTerms { samples, upstream, lse, labels } = terms;
    let plan = BlockPlan::new::<K>(problem);
    // A probability is e^(z − max) · e^(max − lse). e^(z − lse) would save a factor, but lse rounded
    // to f32 has a relative error of 2⁻²⁴, which becomes a relative error of lse · 2⁻²⁴ in p.
    let maxima = || samples.iter().map(|sample| sample.others_max);
    let factors = maxima().zip(lse).map(|(max, lse)| (f64::from(max) - lse).exp());
    let scale = upstream
        .iter()
        .zip(factors)
        .map(|(upstream, factor)| (f64::from(*upstream) * factor) as f32);
    let pass = HeadBackwardPass {
        kernel,
        problem,
        plan,
        by_label: SamplesByLabel::new(problem.labels, &plan),
        class_scales: forward.class_scales(),
        bf16_weights: forward.bf16_weights.as_deref(),
        saved_logits: &part.saved_logits,
        labels,
        wanted,
        // Columns beyond the last sample have a probability of zero.
        shift: padded(maxima().map(finite_or_zero), plan.width, f32::MAX),
        scale: padded(scale, plan.width, 0.0),
        samples_right: match part.saved_logits.len() < problem.classes * plan.width {
            true => pack_samples(kernel, problem, &plan),
            false => Buffer::default(),
        },
        features_right: match wanted.weights {
            true => pack_features(kernel, problem, &plan),
            false => Buffer::default(),
        },
    };
    pass.run(features)
}

fn padded(values: impl Iterator<Item = f32>, width: usize, padding: f32) -> Vec<f32> {
    let mut values: Vec<f32> = values.collect();
    values.resize(width, padding);
    values
}

/// The backward pass of a head.
struct HeadBackwardPass<'a, K: Kernel> {
    kernel: K,
    problem: &'a HeadProblem<'a>,
    plan: BlockPlan,
    by_label: SamplesByLabel,
    /// 1/|W_j| of every class; not read unless weights are normalised.
    class_scales: &'a [f32],
    bf16_weights: Option<&'a Bf16Weights>,
    saved_logits: &'a [f32],
    labels: &'a [LabelGradient],
    wanted: WantedGradients,
    shift: Vec<f32>,
    scale: Vec<f32>,
    samples_right: Buffer,
    features_right: Buffer,
}

impl<K: Kernel> HeadBackwardPass<'_, K> {
    /// Writes the features' gradient, and returns those of weights and bias.
    fn run(&self, features: &mut [f32]) -> [Buffer; 2] {
        let (plan, depth, wanted) = (&self.plan, self.problem.depth, self.wanted);
        let buffer = |wanted: bool, len| Buffer::new(if wanted { len } else { 0 });
        let mut weights = buffer(wanted.weights, self.problem.weights.len());
        let mut bias = buffer(wanted.bias, plan.classes);
        if plan.blocks() == 1 {
            // Nothing else contributes to the features' gradient: it needs no memory of its own.
            self.sum_features(features, &[]);
            let (own_weights, own_bias) = (&mut weights[..], &mut bias[..]);
            let task = BackwardTask {
                blocks: 0..1,
                weights: own_weights,
                bias: own_bias,
                features,
                add: true,
            };
            self.run_of_blocks(&mut BackwardScratch::default(), task);
            return [weights, bias];
        }
        let runs = plan.runs(features.len());
        let mut run_features = Buffer::new(runs.len() * features.len());
        let (mut weights_left, mut bias_left) = (&mut weights[..], &mut bias[..]);
        let mut features_left = &mut run_features[..];
        let tasks = runs.into_iter().map(|blocks| {
            let classes =
                plan.class_range(blocks.start).start..plan.class_range(blocks.end - 1).end;
            let weights = weights_left.split_off_mut(..classes.len() * depth).unwrap_or_default();
            let bias = bias_left.split_off_mut(..classes.len()).unwrap_or_default();
            let features = features_left.split_off_mut(..features.len()).unwrap_or_default();
            BackwardTask { blocks, weights, bias, features, add: false }
        });
        plan.for_each(tasks.collect(), BackwardScratch::default, |scratch, task| {
            self.run_of_blocks(scratch, task)
        });
        if wanted.features {
            self.sum_features(features, &run_features);
        }
        [weights, bias]
    }

    /// Computes a run of blocks, one after the other.
    fn run_of_blocks(&self, scratch: &mut BackwardScratch, mut task: BackwardTask<'_>) {
        for block in task.blocks.clone() {
            let classes = self.plan.class_range(block).len();
            let weights = task.weights.split_off_mut(..classes * self.problem.depth);
            let bias = task.bias.split_off_mut(..classes).unwrap_or_default();
            self.block(scratch, block, weights.unwrap_or_default(), bias);
            if self.wanted.features {
                let add = task.add || block > task.blocks.start;
                self.add_to_features(scratch, block, task.features, add);
            }
        }
    }

    /// The weights of a block, in bf16 if there is such a copy.
    fn weights(&self, classes: &Range<usize>) -> BlockWeights<'_> {
        match self.bf16_weights {
            Some(copy) => BlockWeights::Bf16(copy.rows(classes)),
            None => BlockWeights::F32(self.problem.weights_of(classes)),
        }
    }

    /// Computes one block's softmax, which it leaves in `scratch`, and the gradients of its weights and bias.
    fn block(
        &self,
        scratch: &mut BackwardScratch,
        block: usize,
        weights: &mut [f32],
        bias: &mut [f32],
    ) {
        let (kernel, problem, width) = (self.kernel, self.problem, self.plan.width);
        let BackwardScratch { words, logits, softmax, gradient, .. } = scratch;
        let classes = self.plan.class_range(block);
        let scales = self.class_scales.get(classes.clone()).unwrap_or_default();

        let saved = self.plan.saved_range(block).and_then(|range| self.saved_logits.get(range));
        let logits = saved.unwrap_or_else(|| {
            logits.resize(classes.len() * width);
            let own = Block { classes: classes.clone(), weights: self.weights(&classes), scales };
            let right = self.samples_right.words();
            block_logits(kernel, problem, own, right, words, logits, width);
            mask_labels(problem, &self.plan, &self.by_label, block, logits);
            logits
        });
        softmax.resize(classes.len() * width);
        let columns = (&self.shift[..], &self.scale[..]);
        let factors = if problem.normalised_weights { scales } else { &[] };
        kernel.vectorize(
            #[inline(always)]
            || match self.wanted.bias {
                true => {
                    probabilities::<K::Simd>(logits, width, columns, &[], softmax);
                    row_sums(softmax, width, bias);
                    scale_rows(softmax, width, factors);
                }
                false => probabilities::<K::Simd>(logits, width, columns, factors, softmax),
            },
        );
        if self.wanted.weights {
            let shape = ProductShape {
                rows: classes.len(),
                cols: problem.depth,
                depth: problem.samples().div_ceil(K::Word::ELEMENTS),
            };
            let left = kernel.left_rows(softmax, width, words);
            let right = self.features_right.words();
            // The whole gradient does not fit in cache.
            let large = size_of_val(problem.weights) >= STREAMED_BYTES;
            if large && problem.normalised_weights {
                // The projection reads the block once more.
                gradient.resize(weights.len());
                product(kernel, left, right, shape, gradient, problem.depth, Output::Overwrite);
                self.add_labels(block, gradient, bias);
                self.project(&classes, gradient);
                kernel.simd().stream(gradient, weights);
                kernel.simd().fence();
                return;
            }
            let output = if large { Output::Stream } else { Output::Overwrite };
            product(kernel, left, right, shape, weights, problem.depth, output);
        }
        self.add_labels(block, weights, bias);
        if problem.normalised_weights && self.wanted.weights {
            self.project(&classes, weights);
        }
    }

    /// Projects the gradients of some classes.
    fn project(&self, classes: &Range<usize>, gradients: &mut [f32]) {
        let (rows, scales) =
            (self.problem.weights_of(classes), &self.class_scales[classes.clone()]);
        let depth = self.problem.depth;
        let rows = rows.chunks_exact(depth).zip(scales);
        for (gradient, (weight, scale)) in gradients.chunks_exact_mut(depth).zip(rows) {
            project(self.kernel, gradient, weight, *scale);
        }
    }

    /// Computes the terms of a block's classes in the features' gradient, and adds them to `features` or
    /// overwrites it.
    fn add_to_features(
        &self,
        scratch: &mut BackwardScratch,
        block: usize,
        features: &mut [f32],
        add: bool,
    ) {
        let (kernel, depth, width) = (self.kernel, self.problem.depth, self.plan.width);
        let classes = self.plan.class_range(block);
        let BackwardScratch { softmax, columns, right, .. } = scratch;
        right.resize(right_len::<K>(classes.len(), depth));
        self.weights(&classes).pack_right(kernel, depth, right.words_mut());
        columns.resize(K::left_columns_len(classes.len(), width));
        let (row_stride, depth_stride) = kernel.left_columns(softmax, width, columns.words_mut());
        let shape = ProductShape {
            rows: self.problem.samples(),
            cols: depth,
            depth: classes.len().div_ceil(K::Word::ELEMENTS),
        };
        let left = LeftOperand { words: columns.words(), row_stride, depth_stride };
        let output = if add { Output::Add } else { Output::Overwrite };
        product(kernel, left, right.words(), shape, features, depth, output);
    }

    /// Adds the label terms of a block's weights and bias.
    fn add_labels(&self, block: usize, weights: &mut [f32], bias: &mut [f32]) {
        let first = self.plan.class_range(block).start;
        let depth = self.problem.depth;
        for sample in self.by_label.in_block(block) {
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

    /// Adds the label terms and the sums of all runs, in order.
    fn sum_features(&self, features: &mut [f32], runs: &[f32]) {
        const CHUNK: usize = 16;
        let (depth, len) = (self.problem.depth, features.len());
        let tasks: Vec<_> = features.chunks_mut(CHUNK * depth).enumerate().collect();
        self.plan.for_each(
            tasks,
            || (),
            |(), (chunk, features)| {
                for (offset, out) in features.chunks_exact_mut(depth).enumerate() {
                    let sample = chunk * CHUNK + offset;
                    match self.problem.label(sample) {
                        Some(class) => {
                            let label = &self.labels[sample];
                            let own = (label.along_feature, self.problem.feature(sample));
                            label.combine(self.kernel, own, self.problem.weight(class), out, false);
                        }
                        None => out.fill(0.0),
                    }
                    for run in runs.chunks_exact(len) {
                        let terms = &run[sample * depth..][..depth];
                        self.kernel.vectorize(
                            #[inline(always)]
                            || out.iter_mut().zip(terms).for_each(|(o, term)| *o += term),
                        );
                    }
                }
            },
        );
    }
}

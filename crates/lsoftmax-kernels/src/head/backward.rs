//! The backward pass: recomputes the logits that were not saved, then computes the gradients.
//!
//! Every output element is summed by one task in a fixed order. A group of blocks has two steps:
//! first the weights' gradient of each block, whose rows no other block contributes to; then the
//! features' gradient, for which each task owns some samples and adds all blocks of the group.

use super::blocking::{
    BlockPlan, SamplesByLabel, block_logits, mask_labels, pack_features, pack_samples,
};
use super::label::{LabelGradient, project};
use super::{HeadForward, HeadProblem};
use crate::buffer::Buffer;
use crate::engine::with_kernel;
use crate::kernel::{Kernel, LeftOperand, OperandWord, ProductShape, product, right_len};
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
    with_kernel!(forward.engine, |kernel| run(
        kernel, problem, forward, upstream, lse, labels, wanted
    ))
}

/// One block of classes, and where its results go.
struct BackwardTask<'a> {
    block: usize,
    weights: &'a mut [f32],
    bias: &'a mut [f32],
    operands: &'a mut FeatureGradientOperands,
}

/// A block's operands for the features' gradient: the columns of the softmax, and the weights.
#[derive(Default)]
struct FeatureGradientOperands {
    columns: Buffer,
    /// The row stride and depth stride of `columns`.
    strides: (usize, usize),
    depth: usize,
    right: Buffer,
}

/// Working memory of a thread.
#[derive(Default)]
struct BackwardScratch {
    words: Buffer,
    logits: Buffer,
    softmax: Buffer,
}

fn run<K: Kernel>(
    kernel: K,
    problem: &HeadProblem<'_>,
    forward: &HeadForward,
    upstream: &[f32],
    lse: &[f64],
    labels: &[LabelGradient],
    wanted: WantedGradients,
) -> HeadGradients {
    let plan = BlockPlan::new::<K>(problem);
    // A probability is e^(z − max) · e^(max − lse). e^(z − lse) would save a factor, but lse rounded
    // to f32 has a relative error of 2⁻²⁴, which becomes a relative error of lse · 2⁻²⁴ in p.
    let maxima = || forward.samples.iter().map(|sample| sample.others_max);
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
        class_scales: &forward.class_scales,
        saved_logits: &forward.saved_logits,
        labels,
        wanted,
        // Columns beyond the last sample have a probability of zero.
        shift: padded(maxima().map(finite_or_zero), plan.width, f32::MAX),
        scale: padded(scale, plan.width, 0.0),
        samples_right: match forward.saved_logits.len() < problem.classes * plan.width {
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

/// The backward pass of a head.
struct HeadBackwardPass<'a, K: Kernel> {
    kernel: K,
    problem: &'a HeadProblem<'a>,
    plan: BlockPlan,
    by_label: SamplesByLabel,
    /// 1/|W_j| of every class; empty unless weights are normalised.
    class_scales: &'a [f32],
    saved_logits: &'a [f32],
    labels: &'a [LabelGradient],
    wanted: WantedGradients,
    shift: Vec<f32>,
    scale: Vec<f32>,
    samples_right: Buffer,
    features_right: Buffer,
}

impl<K: Kernel> HeadBackwardPass<'_, K> {
    fn run(&self) -> HeadGradients {
        let (plan, depth, wanted) = (&self.plan, self.problem.depth, self.wanted);
        let buffer = |wanted: bool, len| Buffer::new(if wanted { len } else { 0 });
        let mut features = buffer(wanted.features, self.problem.features.len());
        let mut weights = buffer(wanted.weights, self.problem.weights.len());
        let mut bias = buffer(wanted.bias, plan.classes);
        self.init_features(&mut features);

        let mut operands: Vec<FeatureGradientOperands> = Vec::new();
        operands
            .resize_with(plan.group_blocks.min(plan.blocks()), FeatureGradientOperands::default);
        let (mut weights_left, mut bias_left) = (&mut weights[..], &mut bias[..]);
        for group in plan.groups() {
            let mut tasks = Vec::with_capacity(group.len());
            for (block, operands) in group.clone().zip(&mut operands) {
                let classes = plan.class_range(block).len();
                let weights = weights_left.split_off_mut(..classes * depth).unwrap_or_default();
                let bias = bias_left.split_off_mut(..classes).unwrap_or_default();
                tasks.push(BackwardTask { block, weights, bias, operands });
            }
            plan.for_each(tasks, BackwardScratch::default, |scratch, task| {
                self.block(scratch, task)
            });
            if wanted.features {
                self.add_to_features(&mut features, &operands[..group.len()]);
            }
        }
        HeadGradients { features, weights, bias }
    }

    /// Computes one block's softmax, the gradients of its weights and bias, and the operands for the
    /// features' gradient.
    fn block(&self, scratch: &mut BackwardScratch, task: BackwardTask<'_>) {
        let BackwardTask { block, weights, bias, operands } = task;
        let (kernel, problem, width) = (self.kernel, self.problem, self.plan.width);
        let BackwardScratch { words, logits, softmax } = scratch;
        let classes = self.plan.class_range(block);
        let scales = self.class_scales.get(classes.clone()).unwrap_or_default();

        let saved = self.plan.saved_range(block).and_then(|range| self.saved_logits.get(range));
        let logits = saved.unwrap_or_else(|| {
            logits.resize(classes.len() * width);
            block_logits(
                kernel,
                problem,
                (classes.clone(), scales),
                self.samples_right.words(),
                words,
                logits,
                width,
            );
            mask_labels(problem, &self.plan, &self.by_label, block, logits);
            logits
        });
        softmax.resize(classes.len() * width);
        kernel.vectorize(
            #[inline(always)]
            || probabilities::<K::Simd>(logits, width, &self.shift, &self.scale, softmax),
        );

        if self.wanted.bias {
            kernel.vectorize(
                #[inline(always)]
                || row_sums(softmax, width, bias),
            );
        }
        if problem.normalised_weights {
            kernel.vectorize(
                #[inline(always)]
                || scale_rows(softmax, width, scales),
            );
        }
        if self.wanted.weights {
            let shape = ProductShape {
                rows: classes.len(),
                cols: problem.depth,
                depth: problem.samples().div_ceil(K::Word::ELEMENTS),
            };
            let left = kernel.left_rows(softmax, width, words);
            product(
                kernel,
                left,
                self.features_right.words(),
                shape,
                weights,
                problem.depth,
                false,
            );
        }
        self.add_labels(block, weights, bias);
        if problem.normalised_weights && self.wanted.weights {
            for ((row, scale), class) in
                weights.chunks_exact_mut(problem.depth).zip(scales).zip(classes.clone())
            {
                project(kernel, row, problem.weight(class), *scale);
            }
        }
        if self.wanted.features {
            let own = &problem.weights[classes.start * problem.depth..classes.end * problem.depth];
            operands.right.resize(right_len::<K>(classes.len(), problem.depth));
            kernel.pack_right(own, problem.depth, 0, operands.right.words_mut());
            operands.columns.resize(K::left_columns_len(classes.len(), width));
            operands.strides = kernel.left_columns(softmax, width, operands.columns.words_mut());
            operands.depth = classes.len().div_ceil(K::Word::ELEMENTS);
        }
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

    /// Initialises the features' gradient with its label terms, to which the groups are then added.
    fn init_features(&self, features: &mut [f32]) {
        const CHUNK: usize = 16;
        let depth = self.problem.depth;
        let tasks: Vec<_> = features.chunks_mut(CHUNK * depth).enumerate().collect();
        self.plan.for_each(
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

    /// Adds the terms of a group's classes to the features' gradient.
    fn add_to_features(&self, features: &mut [f32], group: &[FeatureGradientOperands]) {
        let depth = self.problem.depth;
        let samples = self.problem.samples();
        let chunks = samples.div_ceil(2 * K::MR);
        let rows = samples.div_ceil(chunks);
        let tasks: Vec<_> = features.chunks_mut(rows * depth).enumerate().collect();
        self.plan.for_each(
            tasks,
            || (),
            |(), (chunk, features)| {
                for block in group {
                    let (row_stride, depth_stride) = block.strides;
                    let words = &block.columns.words()[chunk * rows * row_stride..];
                    let shape = ProductShape {
                        rows: features.len() / depth,
                        cols: depth,
                        depth: block.depth,
                    };
                    let left = LeftOperand { words, row_stride, depth_stride };
                    product(self.kernel, left, block.right.words(), shape, features, depth, true);
                }
            },
        );
    }
}

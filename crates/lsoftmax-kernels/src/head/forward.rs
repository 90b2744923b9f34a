//! The forward pass: an online log-sum-exp over tiles of classes.

use std::ops::Range;

use super::Problem;
use super::label::{Geometry, geometry};
use super::tiles::{ByLabel, Plan, mask_labels, pack_samples, tile_logits};
use crate::buffer::Buffer;
use crate::kernel::Kernel;
use crate::path::{Engine, with_kernel};
use crate::softmax::{max_and_sum, merge, sum_of_squares};

/// What the forward pass finds out about one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The sample against its class.
    pub geometry: Geometry,
    /// The label's plain logit, W_y·x + b_y, as the matrix product gives it.
    pub plain: f32,
    /// The log-sum-exp of the other classes' logits; −∞ when there is no other class.
    pub others_lse: f64,
    /// The largest of the other classes' logits; −∞ when there is no other class.
    pub others_max: f32,
    /// Whether the label is the first class with the largest plain logit.
    pub correct: bool,
}

/// The result of [`forward`], which [`backward`](super::backward) needs again.
#[derive(Clone, Debug)]
pub struct Forward {
    /// One a sample.
    pub samples: Vec<Sample>,
    /// The smallest and the largest |W_j|; not finite when a weight is not.
    pub weight_norms: (f32, f32),
    pub(super) engine: Engine,
    /// Logits of the first classes, the label's own replaced by −∞.
    pub(super) stash: Buffer,
}

impl Forward {
    /// The engine that ran, and will run the backward pass.
    pub fn engine(&self) -> Engine {
        self.engine
    }
}

/// One sample's label as its tile sees it.
#[derive(Clone, Copy, Default)]
struct LabelLogit {
    plain: f32,
    /// The largest logits of the tile's classes before and after the label.
    before: f32,
    after: f32,
}

struct Task<'a> {
    tile: usize,
    labels: &'a mut [LabelLogit],
    max: &'a mut [f32],
    sum: &'a mut [f32],
    norms: &'a mut (f32, f32),
    stash: Option<&'a mut [f32]>,
}

/// Runs the forward pass. `keep` says whether a backward pass will follow.
pub fn forward(engine: Engine, problem: &Problem<'_>, keep: bool) -> Forward {
    with_kernel!(engine, run(engine, problem, keep))
}

fn run<K: Kernel>(kernel: K, engine: Engine, problem: &Problem<'_>, keep: bool) -> Forward {
    let plan = Plan::new::<K>(problem);
    let by_label = ByLabel::new(problem.labels, &plan);
    let samples_right = pack_samples(kernel, problem, &plan);
    let width = plan.width;
    let mut stash = Buffer::new(if keep { plan.stashed * width } else { 0 });
    let mut stash_left = &mut stash[..];
    let mut labels = vec![LabelLogit::default(); problem.samples()];
    let mut labels_left = labels.as_mut_slice();
    let mut running = Running::new(problem, &plan);
    let mut norms = NO_NORMS;
    let mut partial = vec![0.0f32; 2 * width * plan.block];
    let mut tile_norms = vec![NO_NORMS; plan.block];

    for block in plan.blocks() {
        let mut tasks = Vec::with_capacity(block.len());
        let parts = partial.chunks_exact_mut(2 * width).zip(&mut tile_norms);
        for (tile, (part, norms)) in block.clone().zip(parts) {
            let (max, sum) = part.split_at_mut(width);
            let own = labels_left.split_off_mut(..by_label.of_tile(tile).len());
            let stash = plan
                .stash_range(tile)
                .filter(|_| keep)
                .and_then(|range| stash_left.split_off_mut(..range.len()));
            tasks.push(Task { tile, labels: own.unwrap_or_default(), max, sum, norms, stash });
        }
        plan.each(tasks, Scratch::default, |scratch, task| {
            forward_tile(kernel, problem, &plan, &by_label, samples_right.words(), scratch, task);
        });
        let parts = partial.chunks_exact(2 * width).zip(&tile_norms);
        for (tile, (part, tile_norms)) in block.zip(parts) {
            let (max, sum) = part.split_at(width);
            running.add(kernel, tile as u32, max, sum);
            norms = merge_norms(norms, *tile_norms);
        }
    }

    let mut samples = geometries(kernel, problem, &plan, &running);
    for (sample, label) in by_label.order().iter().zip(&labels) {
        let (before, after) = running.rivals(*sample as usize, label);
        let sample = &mut samples[*sample as usize];
        sample.plain = label.plain;
        sample.others_max = before.max(after);
        sample.correct = before < label.plain && after <= label.plain;
    }
    Forward { samples, weight_norms: norms, engine, stash }
}

#[derive(Default)]
struct Scratch {
    words: Buffer,
    logits: Buffer,
}

fn forward_tile<K: Kernel>(
    kernel: K,
    problem: &Problem<'_>,
    plan: &Plan,
    by_label: &ByLabel,
    samples_right: &[K::Word],
    scratch: &mut Scratch,
    task: Task<'_>,
) {
    let (classes, width) = (plan.class_range(task.tile), plan.width);
    let Scratch { words, logits } = scratch;
    let logits = match task.stash {
        Some(stash) => stash,
        None => {
            logits.resize(classes.len() * width);
            logits
        }
    };
    tile_logits(kernel, problem, classes.clone(), samples_right, words, logits, width);

    for (sample, label) in by_label.of_tile(task.tile).iter().zip(task.labels) {
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
    mask_labels(problem, plan, by_label, task.tile, logits);
    kernel.vectorize(
        #[inline(always)]
        || max_and_sum::<K::Vectors>(logits, width, task.max, task.sum),
    );
    *task.norms = classes
        .map(|class| norm(kernel, problem.weight(class)))
        .fold(NO_NORMS, |range, norm| merge_norms(range, (norm, norm)));
}

/// What has been seen of every sample in the tiles so far.
struct Running {
    max: Vec<f32>,
    sum: Vec<f32>,
    /// The largest logits in tiles before and after the label's own.
    before: Vec<f32>,
    after: Vec<f32>,
    label_tile: Vec<u32>,
}

impl Running {
    fn new(problem: &Problem<'_>, plan: &Plan) -> Self {
        let mut label_tile: Vec<u32> =
            problem.labels.iter().map(|label| label / plan.tile as u32).collect();
        label_tile.resize(plan.width, 0);
        let none = vec![f32::NEG_INFINITY; plan.width];
        Self {
            max: none.clone(),
            sum: vec![0.0; plan.width],
            before: none.clone(),
            after: none,
            label_tile,
        }
    }

    fn add<K: Kernel>(&mut self, kernel: K, tile: u32, max: &[f32], sum: &[f32]) {
        kernel.vectorize(
            #[inline(always)]
            || {
                merge::<K::Vectors>(&mut self.max, &mut self.sum, max, sum);
                let rivals = self.before.iter_mut().zip(&mut self.after);
                for (((before, after), own), max) in rivals.zip(&self.label_tile).zip(max) {
                    let earlier = tile < *own && *max > *before;
                    let later = tile > *own && *max > *after;
                    *before = if earlier { *max } else { *before };
                    *after = if later { *max } else { *after };
                }
            },
        );
    }

    /// The largest logits of the classes before and after a sample's label.
    fn rivals(&self, sample: usize, label: &LabelLogit) -> (f32, f32) {
        (self.before[sample].max(label.before), self.after[sample].max(label.after))
    }

    fn others_lse(&self, sample: usize) -> f64 {
        f64::from(self.max[sample]) + f64::from(self.sum[sample]).ln()
    }
}

/// Every sample with its geometry and its log-sum-exp; the rest is filled in later.
fn geometries<K: Kernel>(
    kernel: K,
    problem: &Problem<'_>,
    plan: &Plan,
    running: &Running,
) -> Vec<Sample> {
    const CHUNK: usize = 32;
    let empty = Sample {
        geometry: Geometry { dot: 0.0, feature_norm: 0.0, weight_norm: 0.0 },
        plain: 0.0,
        others_lse: 0.0,
        others_max: 0.0,
        correct: false,
    };
    let mut samples = vec![empty; problem.samples()];
    let tasks: Vec<_> = samples.chunks_mut(CHUNK).enumerate().collect();
    plan.each(
        tasks,
        || (),
        |(), (chunk, samples)| {
            for (offset, out) in samples.iter_mut().enumerate() {
                let sample = chunk * CHUNK + offset;
                let weight = problem.weight(problem.labels[sample] as usize);
                out.geometry = geometry(kernel, problem.feature(sample), weight);
                out.others_lse = running.others_lse(sample);
            }
        },
    );
    samples
}

const NO_NORMS: (f32, f32) = (f32::INFINITY, 0.0);

/// The range of two ranges; a NaN stays.
fn merge_norms(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    let pick = |a: f32, b: f32, first: bool| if a.is_nan() || first { a } else { b };
    (pick(a.0, b.0, a.0 < b.0), pick(a.1, b.1, a.1 > b.1))
}

/// |w|, by f32 sums where those are safe.
fn norm<K: Kernel>(kernel: K, weight: &[f32]) -> f32 {
    let square = kernel.vectorize(
        #[inline(always)]
        || sum_of_squares(weight),
    );
    // Outside this range f32 squares may have overflowed or lost digits.
    if (1e-20..1e30).contains(&square) {
        square.sqrt()
    } else {
        geometry(kernel, weight, weight).weight_norm as f32
    }
}

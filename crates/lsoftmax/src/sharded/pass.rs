//! A pass over the shards of a head, and what the ranks tell each other about it.

use burn::tensor::{Int, Tensor, TensorData};
use lsoftmax_comm::{fold, sum};
use lsoftmax_flex::{FlexTensor, as_slice, contiguous, from_buffer, into_tensor};
use lsoftmax_kernels::head::{
    self, ELSEWHERE, Geometry, HeadForward, HeadSample, SAVED_LOGITS_BYTES, ShapeError,
    WantedGradients,
};
use lsoftmax_kernels::{Buffer, Engine};

use super::{HeadShard, ShardedHead};
use crate::batch_loss::BatchLoss;
use crate::error::first_not_finite;
use crate::fused::{FlexInputs, label_indices, wide};
use crate::sampling::mix;
use crate::{AngularMargin, HeadError, Report, SampleRate};

/// How the classes of a step are drawn.
#[derive(Clone, Copy)]
pub(super) struct Draw {
    pub rate: SampleRate,
    pub seed: u64,
    pub step: u64,
}

/// The gradients of a shard's parameters.
#[derive(Clone, Debug)]
pub struct ShardGradient {
    /// ∂L/∂W, one row per class, or per drawn class.
    pub weight: Tensor<2>,
    /// ∂L/∂b.
    pub bias: Option<Tensor<1>>,
    /// If classes were drawn, which of the shard's classes the rows are, in increasing order.
    pub rows: Option<Tensor<1, Int>>,
}

/// The loss of a batch, which is the same on every rank.
#[derive(Debug)]
pub struct ShardedOutput<M> {
    /// The features as the kernels take them, normalised if the head does so, in their graph.
    features: Tensor<2>,
    raw_features: Option<Tensor<2>>,
    passes: Vec<ShardPass>,
    samples: Vec<HeadSample>,
    weight_norms: (f32, f32),
    loss: BatchLoss,
    margin: M,
    lambda: f64,
    /// For the sum of the features' gradients.
    tree: TreeOfRanks,
}

/// The forward pass of a shard.
#[derive(Debug)]
struct ShardPass {
    inputs: FlexInputs,
    forward: HeadForward,
    /// The drawn classes.
    rows: Option<Vec<u32>>,
}

/// The nodes of the tree over all shards: those of this rank's shards, and those that each rank adds up.
#[derive(Debug)]
struct TreeOfRanks {
    mine: Vec<u64>,
    of_ranks: Vec<Vec<u64>>,
    ranks: std::sync::Arc<dyn lsoftmax_comm::Communicator>,
}

pub(super) fn forward<M: AngularMargin>(
    head: &ShardedHead<M>,
    features: Tensor<2>,
    labels: Tensor<1, Int>,
    lambda: f64,
    draw: Option<Draw>,
) -> Result<ShardedOutput<M>, HeadError> {
    let [count, depth] = features.dims();
    let layout = head.layout;
    let labels = label_indices(labels, layout.all_classes())?;
    if count == 0 {
        let classes = layout.all_classes();
        return Err(ShapeError::Empty { samples: 0, features: depth, classes }.into());
    }
    let raw_features = head.normalisation.normalises_features().then(|| features.clone().detach());
    let features = head.normalisation.of_features(features, head.log_scale.as_ref());
    let values = contiguous(features.clone()).ok_or(HeadError::NotOnCpu)?;

    let mut passes = Vec::with_capacity(head.shards.len());
    // All shards of a rank together save as many logits as one head.
    let mut to_save = if features.device().is_autodiff() { SAVED_LOGITS_BYTES } else { 0 };
    for (shard, own) in head.mine.clone().zip(&head.shards) {
        let classes = layout.classes(shard);
        let local = |label: &u32| match classes.contains(&(*label as usize)) {
            true => *label - classes.start as u32,
            false => ELSEWHERE,
        };
        let labels = labels.iter().map(local).collect();
        let bytes = classes.len().saturating_mul(4 * count);
        let saves = bytes <= to_save;
        to_save -= if saves { bytes } else { 0 };
        let inputs = ShardInputs { features: values.clone(), labels, shard, saves };
        passes.push(ShardPass::new(head, own, inputs, draw)?);
    }

    let mine = Findings::of(&passes, head, depth);
    let all = head.ranks.gather(&mine.to_bytes());
    let all: Vec<Findings> = all.iter().map(|bytes| Findings::from_bytes(bytes, count)).collect();
    if let Some((sample, index, value)) = first_not_finite(&wide(&values), depth) {
        return Err(HeadError::Feature { sample, index, value });
    }
    if let Some(error) = all.iter().find_map(|found| found.not_finite.clone()) {
        return Err(error);
    }
    let (samples, biases) = merged(&all, count);
    let shards = || all.iter().flat_map(|found| &found.shards);
    let low = shards().map(|shard| shard.norms.0).fold(f32::INFINITY, f32::min);
    let high = shards().map(|shard| shard.norms.1).fold(0.0, f32::max);
    let loss = BatchLoss::new(&samples, biases, head.normalisation, &head.margin, lambda);
    if let Some(error) = loss.not_finite(&samples) {
        return Err(error);
    }
    let size = head.ranks.size();
    let of_rank = |rank| layout.of_rank(rank, size).expect("the head has been divided");
    let tree = TreeOfRanks {
        mine: layout.nodes(&head.mine, true),
        of_ranks: (0..size).map(|rank| layout.nodes(&of_rank(rank), false)).collect(),
        ranks: head.ranks.clone(),
    };
    let (weight_norms, margin) = ((low, high), head.margin.clone());
    Ok(ShardedOutput {
        features,
        raw_features,
        passes,
        samples,
        weight_norms,
        loss,
        margin,
        lambda,
        tree,
    })
}

/// What a pass over a shard takes besides its weights.
struct ShardInputs {
    features: FlexTensor,
    /// By the shard's classes.
    labels: Vec<u32>,
    shard: usize,
    saves: bool,
}

impl ShardPass {
    fn new<M: AngularMargin>(
        head: &ShardedHead<M>,
        own: &HeadShard,
        ShardInputs { features, mut labels, shard, saves }: ShardInputs,
        draw: Option<Draw>,
    ) -> Result<Self, HeadError> {
        let (mut weight, mut bias) = (own.weight.val(), own.bias.as_ref().map(|bias| bias.val()));
        let rows = draw.map(|Draw { rate, seed, step }| {
            let named: Vec<u32> =
                labels.iter().copied().filter(|label| *label != ELSEWHERE).collect();
            let seed = seed ^ mix(shard as u64);
            rate.draw(&named, weight.dims()[0] as u32, seed, step)
        });
        if let Some(rows) = &rows {
            let position =
                |label: &u32| rows.binary_search(label).map_or(ELSEWHERE, |at| at as u32);
            labels.iter_mut().for_each(|label| *label = position(label));
            let index = row_numbers(rows);
            weight = weight.select(0, index.clone());
            bias = bias.map(|bias| bias.select(0, index));
        }
        let bias = bias.map(|bias| contiguous(bias).ok_or(HeadError::NotOnCpu)).transpose()?;
        let inputs = FlexInputs {
            features,
            weight: contiguous(weight).ok_or(HeadError::NotOnCpu)?,
            bias,
            labels,
            normalisation: head.normalisation,
        };
        let engine: Engine = head.engine;
        let forward = head::forward(engine, &inputs.problem()?, saves);
        Ok(Self { inputs, forward, rows })
    }

    /// The gradients: of the features, and of the shard.
    fn backward(
        self,
        upstream: &[f32],
        loss: &BatchLoss,
        labels: &[head::LabelGradient],
    ) -> (Buffer, ShardGradient) {
        let problem = self.inputs.problem().expect("the forward pass has checked the problem");
        let has_bias = self.inputs.bias.is_some();
        let wanted = WantedGradients { features: true, weights: true, bias: has_bias };
        let found = head::backward(&problem, &self.forward, upstream, &loss.lse, labels, wanted);
        let shape = self.inputs.weight.layout().shape().clone();
        let classes = shape[0];
        let bias = has_bias.then(|| into_tensor(from_buffer(found.bias, [classes])));
        let weight = into_tensor(from_buffer(found.weights, shape));
        let rows = self.rows.as_deref().map(row_numbers);
        (found.features, ShardGradient { weight, bias, rows })
    }
}

fn row_numbers(rows: &[u32]) -> Tensor<1, Int> {
    let rows: Vec<i64> = rows.iter().copied().map(i64::from).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), &burn::tensor::Device::flex())
}

impl<M: AngularMargin> ShardedOutput<M> {
    /// The loss of every sample.
    pub fn losses(&self) -> &[f32] {
        &self.loss.losses
    }

    /// Whether the label of every sample has the largest logit, without the margin.
    pub fn correct(&self) -> impl Iterator<Item = bool> + '_ {
        self.samples.iter().map(|sample| sample.correct)
    }

    /// The angle in degrees between every sample and its class; 90 where it is not defined.
    pub fn degrees(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().map(|HeadSample { geometry, .. }| {
            let Geometry { dot, feature_norm, weight_norm } = *geometry;
            let lengths = feature_norm * weight_norm;
            let cosine = if lengths > 0.0 { (dot / lengths).clamp(-1.0, 1.0) } else { 0.0 };
            cosine.acos().to_degrees()
        })
    }

    /// Angles, norms and margins of the batch.
    pub fn report(&self) -> Report<M> {
        let Self { samples, margin, lambda, weight_norms, .. } = self;
        let report = self.loss.report(samples, margin.clone(), *lambda, *weight_norms);
        match &self.raw_features {
            Some(features) => report.with_features(features),
            None => report,
        }
    }

    /// Computes the gradients of `weight` times the mean loss. `update` gets those of the shards of this rank,
    /// one after the other, by the index of the shard on this rank; it may change its parameters. The result is
    /// a number whose own value means nothing, but whose gradient, by the features and by the learned scale, is
    /// that of the loss: its `backward` goes on through the network.
    ///
    /// All ranks must call it.
    pub fn backward(self, weight: f64, mut update: impl FnMut(usize, ShardGradient)) -> Tensor<1> {
        let count = self.samples.len();
        let upstream = vec![(weight / count as f64) as f32; count];
        let labels = self.loss.label_gradients(&self.samples, &upstream);
        let TreeOfRanks { mine, of_ranks, ranks } = self.tree;
        let shards = self.passes.into_iter().zip(mine).enumerate().map(|(index, (pass, id))| {
            let (features, gradient) = pass.backward(&upstream, &self.loss, &labels);
            update(index, gradient);
            (id, features)
        });
        let nodes = fold(shards, |left: &mut Buffer, right: Buffer| {
            left.iter_mut().zip(right.iter()).for_each(|(left, right)| *left += right);
        });
        let shape = self.features.dims();
        let own: Vec<f32> = nodes.iter().flat_map(|(_, sum)| sum.iter().copied()).collect();
        let gradient = sum(&*ranks, &own, shape[0] * shape[1], &of_ranks);
        let gradient = TensorData::new(gradient, shape);
        let gradient = Tensor::from_data(gradient, &self.features.device());
        (self.features * gradient).sum()
    }
}

/// What a rank has found out about a batch.
#[derive(Debug, Default)]
struct Findings {
    shards: Vec<ShardFindings>,
    labels: Vec<LabelFindings>,
    /// The first number of its weights that is not finite.
    not_finite: Option<HeadError>,
}

/// What a rank has found out about a shard.
#[derive(Debug)]
struct ShardFindings {
    /// The smallest and the largest |W|.
    norms: (f32, f32),
    /// The log-sum-exp and the largest logit of the other classes, one of each per sample.
    others: Vec<(f64, f32)>,
}

/// What the rank with the class of a sample has found out about it.
#[derive(Debug)]
struct LabelFindings {
    sample: usize,
    /// The shard of the class, by its index on the rank.
    shard: usize,
    geometry: Geometry,
    plain: f32,
    /// Whether it has the largest logit of the shard.
    correct: bool,
    bias: f64,
}

impl Findings {
    fn of<M: AngularMargin>(passes: &[ShardPass], head: &ShardedHead<M>, depth: usize) -> Self {
        let mut found = Self::default();
        for (shard, ShardPass { inputs, forward, rows }) in passes.iter().enumerate() {
            let others = forward.samples.iter();
            let others = others.map(|sample| (sample.others_lse, sample.others_max)).collect();
            found.shards.push(ShardFindings { norms: forward.weight_norms, others });
            for (sample, label) in inputs.labels.iter().enumerate() {
                if *label != ELSEWHERE {
                    let HeadSample { geometry, plain, correct, .. } = forward.samples[sample];
                    let bias = inputs.label_bias(sample);
                    found.labels.push(LabelFindings {
                        sample,
                        shard,
                        geometry,
                        plain,
                        correct,
                        bias,
                    });
                }
            }
            let first = head.layout.classes(head.mine.start + shard).start;
            let class = |row: usize| first + rows.as_ref().map_or(row, |rows| rows[row] as usize);
            found.not_finite =
                found.not_finite.or_else(|| not_finite(inputs, forward, depth, class));
        }
        found
    }

    /// As numbers, which f64 represents exactly.
    fn to_bytes(&self) -> Vec<u8> {
        let mut numbers: Vec<f64> = vec![self.shards.len() as f64, self.labels.len() as f64];
        for ShardFindings { norms, others } in &self.shards {
            numbers.extend([norms.0, norms.1].map(f64::from));
            numbers.extend(others.iter().flat_map(|(lse, max)| [*lse, f64::from(*max)]));
        }
        for label in &self.labels {
            let LabelFindings { sample, shard, geometry, plain, correct, bias } = label;
            let Geometry { dot, feature_norm, weight_norm } = *geometry;
            let flags = [*sample as f64, *shard as f64, f64::from(u8::from(*correct))];
            numbers.extend(flags);
            numbers.extend([dot, feature_norm, weight_norm, f64::from(*plain), *bias]);
        }
        numbers.extend(match self.not_finite {
            Some(HeadError::Weight { class, index, value }) => {
                [1.0, class as f64, index as f64, value]
            }
            Some(HeadError::Bias { class, value }) => [2.0, class as f64, 0.0, value],
            _ => [0.0; 4],
        });
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8], samples: usize) -> Self {
        let (numbers, _) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|number| f64::from_le_bytes(*number));
        let mut next = || numbers.next().expect("all ranks send what they say");
        let (shards, labels) = (next() as usize, next() as usize);
        let mut found = Self::default();
        for _ in 0..shards {
            let norms = (next() as f32, next() as f32);
            let others = (0..samples).map(|_| (next(), next() as f32)).collect();
            found.shards.push(ShardFindings { norms, others });
        }
        for _ in 0..labels {
            let (sample, shard, correct) = (next() as usize, next() as usize, next() == 1.0);
            let geometry = Geometry { dot: next(), feature_norm: next(), weight_norm: next() };
            let (plain, bias) = (next() as f32, next());
            found.labels.push(LabelFindings { sample, shard, geometry, plain, correct, bias });
        }
        let (kind, class, index, value) = (next(), next() as usize, next() as usize, next());
        found.not_finite = match kind {
            1.0 => Some(HeadError::Weight { class, index, value }),
            2.0 => Some(HeadError::Bias { class, value }),
            _ => None,
        };
        found
    }
}

/// The first weight or bias of a shard that is not finite. Searches only if there is one.
fn not_finite(
    inputs: &FlexInputs,
    forward: &HeadForward,
    depth: usize,
    class: impl Fn(usize) -> usize,
) -> Option<HeadError> {
    let (low, high) = forward.weight_norms;
    if !(low.is_finite() && high.is_finite())
        && let Some((row, index, value)) = first_not_finite(&wide(&inputs.weight), depth)
    {
        return Some(HeadError::Weight { class: class(row), index, value });
    }
    let bias = inputs.bias.as_ref().map(as_slice).unwrap_or_default();
    let row = bias.iter().position(|bias| !bias.is_finite())?;
    Some(HeadError::Bias { class: class(row), value: bias[row].into() })
}

/// The samples as a head with all classes sees them, and the biases of their labels.
fn merged(all: &[Findings], samples: usize) -> (Vec<HeadSample>, Vec<f64>) {
    let shards: Vec<&ShardFindings> = all.iter().flat_map(|found| &found.shards).collect();
    let mut first_shard = 0;
    let mut labels: Vec<Option<(usize, &LabelFindings)>> = vec![None; samples];
    for found in all {
        for label in &found.labels {
            labels[label.sample] = Some((first_shard + label.shard, label));
        }
        first_shard += found.shards.len();
    }
    let sample = |(sample, label): (usize, Option<(usize, &LabelFindings)>)| {
        let (own, label) = label.expect("every class is on a rank");
        let others = || shards.iter().map(|shard| shard.others[sample]);
        let largest = others().map(|(lse, _)| lse).fold(f64::NEG_INFINITY, f64::max);
        let others_lse = match largest {
            // There is no other class.
            f64::NEG_INFINITY => largest,
            _ => largest + others().map(|(lse, _)| (lse - largest).exp()).sum::<f64>().ln(),
        };
        let wins = |(shard, (_, max)): (usize, (f64, f32))| match shard {
            shard if shard < own => max < label.plain,
            shard if shard > own => max <= label.plain,
            _ => label.correct,
        };
        let merged = HeadSample {
            geometry: label.geometry,
            plain: label.plain,
            others_lse,
            others_max: others().map(|(_, max)| max).fold(f32::NEG_INFINITY, f32::max),
            correct: others().enumerate().all(wins),
        };
        (merged, label.bias)
    };
    labels.into_iter().enumerate().map(sample).unzip()
}

//! A head whose classes are divided over ranks.

mod initial;
mod pass;
mod shards;

use std::ops::Range;
use std::sync::Arc;

use burn::module::{Module, Param, ParamId};
use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax_comm::Communicator;
use lsoftmax_flex::{from_buffer, into_tensor};
use lsoftmax_kernels::{Engine, EngineError, Precision};

pub use pass::{ShardGradient, ShardedOutput};
pub use shards::{ClassShards, ShardError};

use crate::{AngularMargin, HeadError, Margin, MarginHead, Normalisation, SampleRate, lambda};
use pass::Draw;

/// Weights and bias of a shard's classes. On a device without autodiff: [`ShardedOutput::backward`] computes
/// gradients itself.
#[derive(Module, Debug)]
pub struct HeadShard {
    /// W of the shard's classes, `[classes, features]`.
    pub weight: Param<Tensor<2>>,
    /// b of the shard's classes.
    pub bias: Option<Param<Tensor<1>>>,
}

/// A [`MarginHead`] whose classes are divided over ranks: a rank has the weights, the gradients and the state of the
/// optimiser of its [shards](ClassShards) alone.
///
/// All ranks call the same methods with the same features and labels, those of the whole batch. They exchange
/// what a softmax over all classes needs of each sample, and add the features' gradients, both in an order that does
/// not depend on the number of ranks: 1, 2, 3 or 64 of them compute the same bits. They are not those of
/// a [`MarginHead`], which adds in another order.
///
/// The gradients of the weights come shard by shard, so that they never exist all at once:
///
/// ```
/// use std::sync::Arc;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use lsoftmax::{Margin, Normalisation, ShardedHead};
/// use lsoftmax_kernels::{Engine, Precision};
///
/// let engine = Engine::new(Precision::F32)?;
/// let ranks = Arc::new(lsoftmax_comm::Alone); // or those of mpirun
/// let mut head = ShardedHead::new(2016, 16, 1000, Margin::ONE, engine, ranks)?
///     .with_normalisation(Normalisation::Both { scale: 16.0 });
/// let device = Device::flex().autodiff();
/// let features = Tensor::<2>::random([4, 16], Distribution::Normal(0.0, 1.0), &device).require_grad();
/// let labels = Tensor::from_ints([3, 141, 592, 653], &device);
///
/// let output = head.forward(features.clone(), labels, 0.0)?;
/// println!("{}", output.report().loss);
/// let loss = output.backward(1.0, |shard, gradient| {
///     let weight = head.shards[shard].weight.clone();
///     head.shards[shard].weight = weight.map(|weight| weight - gradient.weight * 0.1);
/// });
/// assert!(features.grad(&loss.backward()).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardedHead<M: AngularMargin = Margin> {
    /// The shards of this rank, in order.
    pub shards: Vec<HeadShard>,
    /// The logarithm of the scale s, if it is learned; the same on every rank.
    pub log_scale: Option<Param<Tensor<1>>>,
    /// The margin.
    pub margin: M,
    /// What is normalised.
    pub normalisation: Normalisation,
    /// The share of the classes that [`ShardedHead::forward_sampled`] draws.
    pub sample_rate: SampleRate,
    engine: Engine,
    features: usize,
    layout: ClassShards,
    /// Which shards those of this rank are.
    mine: Range<usize>,
    ranks: Arc<dyn Communicator>,
}

impl<M: AngularMargin> ShardedHead<M> {
    /// A head that normalises nothing, with He's initial weights, which are a function of the seed and the class.
    ///
    /// # Errors
    /// When there are more ranks than shards.
    ///
    /// # Panics
    /// When there are no features or no classes.
    pub fn new(
        seed: u64,
        features: usize,
        classes: usize,
        margin: M,
        engine: Engine,
        ranks: Arc<dyn Communicator>,
    ) -> Result<Self, ShardError> {
        assert!(features > 0 && classes > 0, "a head needs features and classes");
        let layout = ClassShards::new(classes);
        let mine = layout.of_rank(ranks.rank(), ranks.size())?;
        let shard = |shard: usize| {
            let classes = layout.classes(shard);
            let rows = classes.len();
            let weights = initial::he_normal(seed, classes, features);
            HeadShard::new(shard, into_tensor(from_buffer(weights, [rows, features])))
        };
        Ok(Self {
            shards: mine.clone().map(shard).collect(),
            log_scale: None,
            margin,
            normalisation: Normalisation::None,
            sample_rate: SampleRate::ALL,
            engine,
            features,
            layout,
            mine,
            ranks,
        })
    }

    /// This rank's part of a head that has all classes.
    ///
    /// # Errors
    /// When there are more ranks than shards, the requested kernel path is unavailable, or the head's execution is
    /// Burn's own operations.
    pub fn of_head(
        head: &MarginHead<M>,
        ranks: Arc<dyn Communicator>,
    ) -> Result<Self, ShardedHeadError> {
        let engine = head.execution.engine()?.ok_or(HeadError::NotOnCpu)?;
        let [classes, features] = head.weight.dims();
        let layout = ClassShards::new(classes);
        let mine = layout.of_rank(ranks.rank(), ranks.size())?;
        let is_autodiff = head.weight.device().is_autodiff();
        let shard = |shard: usize| {
            let rows = layout.classes(shard);
            let weight = if is_autodiff { head.weight.val().inner() } else { head.weight.val() };
            let own = HeadShard::new(shard, owned(weight.slice([rows.clone()])));
            match &head.bias {
                Some(bias) => {
                    let bias = if is_autodiff { bias.val().inner() } else { bias.val() };
                    own.with_bias(shard, owned(bias.slice([rows])))
                }
                None => own,
            }
        };
        Ok(Self {
            shards: mine.clone().map(shard).collect(),
            log_scale: head.log_scale.clone(),
            margin: head.margin.clone(),
            normalisation: head.normalisation,
            sample_rate: head.sample_rate,
            engine,
            features,
            layout,
            mine,
            ranks,
        })
    }

    /// This head with another normalisation, and a scale that is not learned.
    ///
    /// # Panics
    /// When the scale is not above 0 and finite.
    pub fn with_normalisation(mut self, normalisation: Normalisation) -> Self {
        normalisation.check();
        (self.normalisation, self.log_scale) = (normalisation, None);
        self
    }

    /// This head with a scale that is learned, on a device with autodiff. Without normalised features there is no
    /// scale, and nothing changes.
    pub fn with_learned_scale(mut self, device: &Device) -> Self {
        self.log_scale = self.normalisation.learned_scale(device);
        self
    }

    /// This head with another share of the classes for [`ShardedHead::forward_sampled`].
    pub fn with_sample_rate(mut self, rate: SampleRate) -> Self {
        self.sample_rate = rate;
        self
    }

    /// This head without a margin and without gradients, which shares the weights: for evaluation, by products of
    /// f32 as those of [`MarginHead::logits`].
    ///
    /// # Errors
    /// When the requested kernel path is unavailable.
    pub fn for_evaluation(&self) -> Result<ShardedHead<Margin>, EngineError> {
        let engine = Engine::new(Precision::F32)?;
        let Self { shards, log_scale, normalisation, features, layout, mine, ranks, .. } =
            self.clone();
        let plain = |log: Param<Tensor<1>>| {
            let log = log.val();
            Param::from_tensor(if log.device().is_autodiff() { log.inner() } else { log })
        };
        Ok(ShardedHead {
            shards,
            log_scale: log_scale.map(plain),
            margin: Margin::ONE,
            normalisation,
            sample_rate: SampleRate::ALL,
            engine,
            features,
            layout,
            mine,
            ranks,
        })
    }

    /// The division of the classes.
    pub fn layout(&self) -> ClassShards {
        self.layout
    }

    /// Which shards those of this rank are.
    pub fn mine(&self) -> Range<usize> {
        self.mine.clone()
    }

    /// The number of features per sample.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The ranks.
    pub fn ranks(&self) -> &Arc<dyn Communicator> {
        &self.ranks
    }

    /// The loss of a batch: see [`MarginHead::forward`]. Features and labels are those of
    /// the whole batch, the same on every rank.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - labels: `[samples]`, each from 0 to the number of all classes − 1
    ///
    /// # Errors
    /// When shapes do not match, a label is out of range, λ is invalid, or a feature, a weight or the loss is not
    /// finite; then on all ranks.
    pub fn forward(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<ShardedOutput<M>, HeadError> {
        self.run(features, labels, lambda, None)
    }

    /// The loss of a batch with some of the classes: those of the labels, and of the others of every shard the
    /// [share](SampleRate) that is drawn by `seed` and `step`; see [`MarginHead::sampled`]. The gradients are those
    /// of [some rows](ShardGradient::rows).
    ///
    /// # Errors
    /// See [`ShardedHead::forward`].
    pub fn forward_sampled(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
        seed: u64,
        step: u64,
    ) -> Result<ShardedOutput<M>, HeadError> {
        self.run(features, labels, lambda, Some(Draw { rate: self.sample_rate, seed, step }))
    }

    fn run(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
        draw: Option<Draw>,
    ) -> Result<ShardedOutput<M>, HeadError> {
        lambda::checked(lambda)?;
        let ([samples, found], [named]) = (features.dims(), labels.dims());
        if found != self.features {
            return Err(HeadError::Features { expected: self.features, found });
        }
        if named != samples {
            return Err(HeadError::Labels { samples, labels: named });
        }
        pass::forward(self, features, labels, lambda, draw)
    }
}

/// Why a head could not be divided.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ShardedHeadError {
    /// More ranks than shards.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The head is not computed by the CPU kernels.
    #[error(transparent)]
    Head(#[from] HeadError),
}

impl HeadShard {
    /// A shard with these weights. Its parameters have numbers that are a function of `shard`, by which an optimiser
    /// knows them on whatever rank they are.
    pub fn new(shard: usize, weight: Tensor<2>) -> Self {
        let id = ParamId::from(2 * shard as u64 + 1);
        Self { weight: Param::initialized(id, weight), bias: None }
    }

    /// This shard with a bias.
    pub fn with_bias(mut self, shard: usize, bias: Tensor<1>) -> Self {
        self.bias = Some(Param::initialized(ParamId::from(2 * shard as u64 + 2), bias));
        self
    }
}

/// A copy of a tensor that shares no memory.
fn owned<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let device = tensor.device();
    let data: TensorData = tensor.into_data();
    Tensor::from_data(data, &device)
}

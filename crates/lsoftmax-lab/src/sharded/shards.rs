//! The shards of this rank with their optimisers.

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Int, Tensor};
use lsoftmax::{HeadError, HeadShard, RowSgd, ShardGradient, ShardedHead, ShardedOutput};

use crate::head::HeadMargin;
use crate::optimiser::Optimiser;

/// This rank's part of a head, in training.
pub(crate) struct TrainedShards {
    pub head: ShardedHead<HeadMargin>,
    /// One per shard.
    pub(super) optimisers: Vec<ShardOptimiser>,
}

/// The optimiser of a shard.
pub(super) enum ShardOptimiser {
    /// Of all its classes.
    All(ModuleOptimizer),
    /// Of those that a step draws.
    Drawn(Box<RowSgd>),
}

impl ShardOptimiser {
    /// Takes a step on a shard, which it owns to change it in place.
    fn step(&mut self, rate: f64, shard: HeadShard, gradient: ShardGradient) -> HeadShard {
        match (self, gradient.rows) {
            (Self::Drawn(optimiser), Some(rows)) => {
                let HeadShard { weight, bias } = shard;
                HeadShard { weight: optimiser.step(rate, weight, rows, gradient.weight), bias }
            }
            (Self::All(optimiser), None) => {
                let mut gradients = GradientsParams::new();
                gradients.register(shard.weight.id, gradient.weight);
                // Burn's optimisers take parameters with autodiff.
                let HeadShard { weight, bias } = shard;
                let weight = weight.map(|weight| Tensor::from_inner(weight).require_grad());
                let HeadShard { weight, bias } =
                    optimiser.step(rate, HeadShard { weight, bias }, gradients);
                HeadShard { weight: weight.map(Tensor::inner), bias }
            }
            _ => unreachable!("classes are drawn in every step or in none"),
        }
    }
}

impl TrainedShards {
    /// With fresh optimisers. If classes are drawn, the optimiser must be SGD with plain momentum.
    pub fn new(head: ShardedHead<HeadMargin>, optimiser: &Optimiser, is_drawn: bool) -> Self {
        let of_shard = |_: &HeadShard| match is_drawn {
            true => {
                let rows = optimiser.init_rows();
                let rows = rows.expect("drawn classes need SGD with plain momentum");
                ShardOptimiser::Drawn(Box::new(rows))
            }
            false => ShardOptimiser::All(optimiser.init(1.0)),
        };
        Self { optimisers: head.shards.iter().map(of_shard).collect(), head }
    }

    /// The loss of a batch; of classes that are drawn by a seed, if there is one.
    pub fn forward(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
        seed: Option<u64>,
        step: u64,
    ) -> Result<ShardedOutput<HeadMargin>, HeadError> {
        match seed {
            Some(seed) => self.head.forward_sampled(features, labels, lambda, seed, step),
            None => self.head.forward(features, labels, lambda),
        }
    }

    /// Computes the gradients of `share` times the loss, applies those of each shard as soon as they are there, and
    /// returns what [`ShardedOutput::backward`] does.
    pub fn apply(&mut self, output: ShardedOutput<HeadMargin>, share: f64, rate: f64) -> Tensor<1> {
        let mut shards = std::mem::take(&mut self.head.shards).into_iter();
        let (updated, optimisers) = (&mut self.head.shards, &mut self.optimisers);
        output.backward(share, |index, gradient| {
            let shard = shards.next().expect("one gradient per shard");
            updated.push(optimisers[index].step(rate, shard, gradient));
        })
    }

    /// Applies gradients, one per shard.
    pub fn update(&mut self, gradients: impl Iterator<Item = ShardGradient>, rate: f64) {
        let shards = std::mem::take(&mut self.head.shards).into_iter();
        let updates = shards.zip(gradients).zip(&mut self.optimisers);
        let step = |((shard, gradient), optimiser): (_, &mut ShardOptimiser)| {
            optimiser.step(rate, shard, gradient)
        };
        self.head.shards = updates.map(step).collect();
    }
}

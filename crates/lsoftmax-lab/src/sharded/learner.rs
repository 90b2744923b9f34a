//! The training step of a model whose head is divided over ranks.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use lsoftmax::{ContrastiveLossConfig, ShardGradient, ShardedHead, ShardedOutput};
use lsoftmax_comm::Communicator;
use lsoftmax_nn::{Network, NetworkConfig};

use super::shards::TrainedShards;
use crate::batch::LabelledImages;
use crate::compute::Compute;
use crate::fine_tuning::{Init, InitialModel, frozen};
use crate::head::HeadMargin;
use crate::learner::{StepError, StepSettings, scale_gradients, squared_norm};
use crate::model::{Classifier, ModelError, is_finite};
use crate::objective::{BatchMetrics, Objective};
use crate::recipe::Recipe;
use crate::train::TrainError;

/// What every rank has: the network, and the learned scale of the head.
#[derive(Module, Debug)]
pub(crate) struct Trunk {
    /// Images to features.
    pub network: Network,
    /// The logarithm of the scale s, if it is learned.
    pub log_scale: Option<Param<Tensor<1>>>,
}

/// A model in training whose head is divided over ranks, with its optimisers and loss.
pub(crate) struct ShardedLearner {
    /// `None` only while the optimiser owns it.
    pub(super) trunk: Option<Trunk>,
    pub(super) optimiser: ModuleOptimizer,
    pub(super) shards: TrainedShards,
    objective: Objective,
    clip_norm: Option<f64>,
    /// By which classes are drawn, if they are.
    seed: Option<u64>,
}

impl ShardedLearner {
    /// A new model, and a note if it is not quite the one to start from.
    pub fn new(
        recipe: &Recipe,
        network: &NetworkConfig,
        classes: usize,
        compute: &Compute,
        initial: Option<&InitialModel>,
    ) -> Result<(Self, Option<String>), TrainError> {
        let Some(engine) = compute.execution.engine()? else {
            return Err(TrainError::Fit(
                "classes can be divided over ranks only with the CPU kernels, not with Burn's own operations or on another device; leave shard_classes out".into(),
            ));
        };
        let device = compute.device.clone().autodiff();
        let execution = compute.execution.clone();
        let ranks = &compute.ranks;
        // The network is that of a model with any number of classes.
        let model = Classifier::from_seed(recipe.seed, network, 1, recipe.head, execution, &device);
        let mut model = model.map_err(ModelError::from)?;
        let mut note = None;
        if let Some(initial) = initial {
            model = initial.apply_network(model, &device)?;
            note = Some(format!(
                "the head of {} is not used, a new one is trained: its classes are divided over ranks",
                initial.path().display()
            ));
        }
        let trunk_rate = recipe.init.as_ref().map_or(1.0, |init| init.trunk_rate);
        if let Some(Init { freeze, .. }) = &recipe.init {
            model = frozen(model, *freeze);
        }
        let head = recipe.head.sharded(
            recipe.seed,
            (network.features.size, classes),
            engine,
            Arc::clone(ranks),
            &device,
        );
        let head = head.map_err(|error| TrainError::Fit(error.to_string()))?;
        let trunk = Trunk {
            network: model.network.with_ranks(Arc::clone(ranks)),
            log_scale: head.log_scale.clone(),
        };
        let is_drawn = recipe.head.is_sampled();
        let optimiser = recipe.optimiser();
        let learner = Self {
            trunk: Some(trunk),
            optimiser: optimiser.init(trunk_rate),
            shards: TrainedShards::new(head, &optimiser.of_head(), is_drawn),
            objective: recipe.loss,
            clip_norm: recipe.clip_norm,
            seed: is_drawn.then_some(recipe.seed),
        };
        Ok((learner, note))
    }

    /// What every rank has.
    pub fn trunk(&self) -> &Trunk {
        self.trunk.as_ref().expect("only an update takes it, and puts it back")
    }

    /// This rank's part of the head.
    pub fn head(&self) -> &ShardedHead<HeadMargin> {
        &self.shards.head
    }

    /// A sentence on who has which classes.
    pub fn division(&self) -> String {
        let (layout, ranks) = (self.head().layout(), self.ranks().size());
        let (classes, shards) = (layout.all_classes(), layout.count());
        let of_ranks = (0..ranks).map(|rank| {
            let shards = layout.of_rank(rank, ranks).expect("the head has been divided");
            shards.map(|shard| layout.classes(shard).len()).sum::<usize>()
        });
        let most = of_ranks.max().unwrap_or(classes);
        let holders = match ranks {
            1 => "this rank has all of them".to_owned(),
            ranks => format!("each of {ranks} ranks has at most {most} classes"),
        };
        format!("the {classes} classes are divided into {shards} shards; {holders}")
    }

    pub(super) fn ranks(&self) -> &dyn Communicator {
        &**self.head().ranks()
    }

    pub(super) fn device(&self) -> Device {
        Device::flex()
    }

    /// Whether all parameters of all ranks are finite.
    pub fn is_finite(&self) -> bool {
        let shards_are = || self.head().shards.iter().all(is_finite);
        !self.ranks().any(!(is_finite(self.trunk()) && shards_are()))
    }

    /// Takes one optimiser step on the mean loss of `batches`, as [`Learner::step_with`](crate::learner::Learner)
    /// does; `inspect` gets the gradients of the network. On all ranks.
    ///
    /// Without clipping and accumulation, the gradients of a shard are applied as soon as they are there, and never
    /// exist for all shards at once.
    pub fn step_with(
        &mut self,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        settings: StepSettings,
        inspect: impl FnOnce(&Trunk, &mut GradientsParams),
    ) -> Result<BatchMetrics, StepError> {
        let share = 1.0 / batches.len() as f64;
        let applies_at_once = batches.len() == 1 && self.clip_norm.is_none();
        let mut kept: Vec<ShardGradient> = Vec::new();
        let mut accumulator = GradientsAccumulator::new();
        let mut metrics = BatchMetrics::default();
        for batch in batches {
            let (output, pairs, of_batch) = self.output(batch, settings)?;
            metrics = metrics.plus(of_batch, share);
            let loss = if applies_at_once {
                self.shards.apply(output, share, settings.rate)
            } else {
                output.backward(share, |index, gradient| match kept.get_mut(index) {
                    Some(sum) => sum.weight = sum.weight.clone() + gradient.weight,
                    None => kept.push(gradient),
                })
            };
            let loss = match pairs {
                Some(pairs) => loss + pairs.mul_scalar(share),
                None => loss,
            };
            let trunk = self.trunk();
            accumulator.accumulate(trunk, GradientsParams::from_grads(loss.backward(), trunk));
        }
        let mut gradients = accumulator.grads();
        inspect(self.trunk(), &mut gradients);
        if let Some(max_norm) = self.clip_norm {
            self.clip(&mut gradients, &mut kept, max_norm);
        }
        if !applies_at_once {
            self.shards.update(kept.into_iter(), settings.rate);
        }
        let trunk = self.trunk.take().expect("only an update takes it, and puts it back");
        let trunk = self.optimiser.step(settings.rate, trunk, gradients);
        self.shards.head.log_scale.clone_from(&trunk.log_scale);
        self.trunk = Some(trunk);
        Ok(metrics)
    }

    /// The head's output for a batch, the rest of the loss if there is one, and the metrics.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn output(
        &self,
        LabelledImages { images, labels }: LabelledImages,
        StepSettings { lambda, step, .. }: StepSettings,
    ) -> Result<(ShardedOutput<HeadMargin>, Option<Tensor<1>>, BatchMetrics), StepError> {
        let features = self.trunk().network.forward(images).map_err(ModelError::from)?;
        let (x, y) = (features.clone(), labels.clone());
        let output =
            self.shards.forward(x, y, lambda, self.seed, step).map_err(ModelError::from)?;
        let mut metrics = BatchMetrics::from(output.report());
        let pairs = match self.objective {
            Objective::Contrastive { weight, margin } => {
                let contrastive = ContrastiveLossConfig::new().with_margin(margin).init();
                let pairs = contrastive.forward_batch(features, labels).mul_scalar(weight);
                metrics.loss += f64::from(pairs.clone().into_scalar::<f32>());
                Some(pairs)
            }
            _ => None,
        };
        if !metrics.loss.is_finite() {
            return Err(StepError::NotFinite("the loss is not finite".into()));
        }
        Ok((output, pairs, metrics))
    }

    /// Scales all gradients so that their global norm, over all shards of all ranks, is at most `max_norm`.
    fn clip(&self, gradients: &mut GradientsParams, shards: &mut [ShardGradient], max_norm: f64) {
        let square = |gradient: &ShardGradient| {
            let numbers = gradient.weight.to_data();
            numbers.iter::<f32>().map(|one| f64::from(one) * f64::from(one)).sum::<f64>()
        };
        let mine: Vec<u8> = shards.iter().flat_map(|one| square(one).to_le_bytes()).collect();
        // Added in the order of the shards, whichever ranks have them.
        let all = self.ranks().gather(&mine).concat();
        let head: f64 = all.as_chunks().0.iter().map(|one| f64::from_le_bytes(*one)).sum();
        let norm = (squared_norm(self.trunk(), gradients) + head).sqrt();
        if norm > max_norm {
            let factor = max_norm / norm;
            scale_gradients(self.trunk(), gradients, factor);
            for gradient in shards {
                gradient.weight = gradient.weight.clone().mul_scalar(factor);
            }
        }
    }
}

//! What a run trains: a model that every rank has, or one whose head is divided over them.

use std::sync::Arc;

use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use lsoftmax_nn::NetworkConfig;

use super::TrainError;
use super::agreement::{metrics_of_first, take_gradients_of_first};
use super::data::TrainingData;
use crate::batch::LabelledImages;
use crate::compute::Compute;
use crate::fine_tuning::{Init, InitialModel, frozen};
use crate::learner::{Learner, StepError, StepSettings};
use crate::model::{Classifier, ModelError};
use crate::objective::BatchMetrics;
use crate::recipe::Recipe;
use crate::run::RunDirectory;
use crate::sharded::ShardedLearner;

/// A model in training.
pub(super) enum Training {
    /// All of it, on every rank.
    Whole(Box<Learner>),
    /// With a head whose classes are divided over the ranks.
    Sharded(Box<ShardedLearner>),
}

impl Training {
    /// A model at the start of a run, and a note if it is not quite the one to start from.
    pub fn new(
        recipe: &Recipe,
        network: &NetworkConfig,
        data: &TrainingData,
        compute: &Compute,
        initial: Option<&InitialModel>,
    ) -> Result<(Self, Option<String>), TrainError> {
        if recipe.shard_classes {
            let classes = data.classes;
            let (learner, note) = ShardedLearner::new(recipe, network, classes, compute, initial)?;
            return Ok((Self::Sharded(Box::new(learner)), note));
        }
        let (model, note) = fresh_model(recipe, network, data, compute, initial)?;
        Ok((Self::Whole(Box::new(learner(recipe, model))), note))
    }

    /// Takes one step. If the ranks compute on `different` kernels, with the gradients and metrics of rank 0.
    pub fn step(
        &mut self,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        settings: StepSettings,
        compute: &Compute,
        different: bool,
    ) -> Result<BatchMetrics, StepError> {
        let ranks = &*compute.ranks;
        let metrics = match self {
            Self::Whole(learner) => learner.step_with(batches, settings, |model, gradients| {
                if different {
                    take_gradients_of_first(ranks, model, gradients);
                }
                Ok(())
            }),
            Self::Sharded(learner) => learner.step_with(batches, settings, |trunk, gradients| {
                if different {
                    take_gradients_of_first(ranks, trunk, gradients);
                }
            }),
        }?;
        Ok(if different { metrics_of_first(ranks, metrics) } else { metrics })
    }

    /// The model, if every rank has all of it.
    pub fn whole(&self) -> Option<&Classifier> {
        match self {
            Self::Whole(learner) => Some(learner.model()),
            Self::Sharded(_) => None,
        }
    }

    /// Whether all parameters are finite, on every rank.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Whole(learner) => learner.model().is_finite(),
            Self::Sharded(learner) => learner.is_finite(),
        }
    }

    /// The records of a checkpoint: model and optimiser. Those of shards are written to files of their own, and
    /// their digests returned.
    pub fn records(&self, run: &RunDirectory, step: u64) -> Result<Records, TrainError> {
        let failed = |reason: String| TrainError::Checkpoint { step, reason };
        match self {
            Self::Whole(learner) => {
                let model = learner.model().clone().into_record().into_bytes();
                let model = model.map_err(|error| failed(error.to_string()))?.to_vec();
                let optimiser = learner.optimiser_record().map_err(failed)?;
                Ok(Records { model, optimiser, shards: Vec::new() })
            }
            Self::Sharded(learner) => {
                let [model, optimiser] = learner.trunk_records().map_err(failed)?;
                let shards = learner.write_shards(run, step)?;
                Ok(Records { model, optimiser, shards })
            }
        }
    }

    /// The model of a checkpoint, in the place of the initial one `fresh`. The inner error is the reason why the
    /// records are not those of such a model.
    pub fn load(
        fresh: Self,
        Records { model, optimiser, shards }: Records,
        recipe: &Recipe,
        run: &RunDirectory,
        step: u64,
    ) -> Result<Result<Self, String>, TrainError> {
        match fresh {
            Self::Whole(fresh) => {
                let loaded = || {
                    let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(model));
                    let record = record.map_err(|error| error.to_string())?;
                    let model = fresh.model().clone().try_load_record(record);
                    let model = model.map_err(|error| error.to_string())?;
                    learner(recipe, model).with_optimiser_record(optimiser)
                };
                Ok(loaded().map(|learner| Self::Whole(Box::new(learner))))
            }
            Self::Sharded(mut learner) => {
                if let Err(reason) = learner.load_trunk(model, optimiser) {
                    return Ok(Err(reason));
                }
                learner.load_shards(run, step, &shards)?;
                Ok(Ok(Self::Sharded(learner)))
            }
        }
    }
}

/// The parts of a checkpoint that are a model in training.
pub(super) struct Records {
    pub model: Vec<u8>,
    pub optimiser: Vec<u8>,
    /// The digests of the files of the shards.
    pub shards: Vec<String>,
}

/// The initial model of a run, and a note if it is not quite the one to start from.
fn fresh_model(
    recipe: &Recipe,
    network: &NetworkConfig,
    data: &TrainingData,
    compute: &Compute,
    initial: Option<&InitialModel>,
) -> Result<(Classifier, Option<String>), TrainError> {
    let device = compute.device.clone().autodiff();
    let execution = compute.execution.clone();
    let Recipe { seed, head, .. } = *recipe;
    let model = Classifier::from_seed(seed, network, data.classes, head, execution, &device);
    let Classifier { network, head } = model.map_err(ModelError::from)?;
    let model = Classifier { network: network.with_ranks(Arc::clone(&compute.ranks)), head };
    match initial {
        Some(initial) => Ok(initial.apply(model, &data.class_names, &device)?),
        None => Ok((model, None)),
    }
}

fn learner(recipe: &Recipe, model: Classifier) -> Learner {
    let optimiser = recipe.optimiser();
    let learner = match &recipe.init {
        Some(Init { freeze, trunk_rate, .. }) => {
            Learner::new(frozen(model, *freeze), &optimiser, recipe.loss)
                .with_trunk_rate(&optimiser, *trunk_rate)
        }
        None => Learner::new(model, &optimiser, recipe.loss),
    };
    learner.with_clip_norm(recipe.clip_norm).with_seed(recipe.seed)
}

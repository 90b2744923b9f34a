//! The description of a training run: data, network, loss, schedules.
//!
//! A recipe comes from a file ([`Recipe::from_file`]), from the program ([`Recipe::built_in`]) or, for a
//! folder of images, from the size of the folder ([`Recipe::for_folder`]). It is plain data: set its
//! fields, then call [`Recipe::check`].
//!
//! ```
//! use lsoftmax_lab::recipe::Recipe;
//! let paper = Recipe::built_in("mnist")?;
//! let expected = paper.expected_result().expect("the paper has this margin");
//! assert_eq!(expected.test_error, 0.31);
//!
//! let mut short = paper.scaled(1800);
//! short.seed = 7;
//! short.check()?;
//! # Ok::<(), lsoftmax_lab::recipe::RecipeError>(())
//! ```

mod built_in;
mod check;
mod choice;
mod error;
mod folder;
mod keys;
mod lambda;
mod read;
mod same_experiment;
mod scaled;

use std::collections::BTreeMap;

use lsoftmax::Precision;
use lsoftmax_data::{Augment, DataSource};
use lsoftmax_nn::{NetworkConfig, NetworkError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use choice::ForDataError;
pub use error::{Position, RecipeError};
pub use keys::known_keys;
pub use lambda::{AutoRule, Lambda};

pub use crate::fine_tuning::Init;
use crate::head::{HeadMargin, HeadSettings};
pub use crate::objective::Objective;
use crate::optimiser::{AdamW, Optimiser, Sgd};

/// A training run, as `recipes/*.toml` describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// Where it comes from, such as a row of a table of the paper; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The expected results by margin of L-Softmax, where known; `"1"` is softmax.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected: BTreeMap<String, Expected>,
    /// The data: `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, or the path of a folder of images.
    pub data: DataSource,
    /// Random augmentation.
    #[serde(default = "no_augmentation")]
    pub augment: Augment,
    /// The number of training images held out for validation.
    pub validation: usize,
    /// The network: a name, or a description.
    pub network: NetworkChoice,
    /// A trained model to start from; random weights if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Init>,
    /// The loss.
    #[serde(default, skip_serializing_if = "Objective::is_default")]
    pub loss: Objective,
    /// The head: a name or a table; `margin = 4` is L-Softmax.
    #[serde(alias = "margin")]
    pub head: HeadSettings,
    /// Whether the classes of the head are divided over the ranks, each of which then has the weights of its own
    /// alone. The results differ in the last bits from those of a head that is not divided, and do not depend on the
    /// number of ranks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shard_classes: bool,
    /// λ: by step, or automatic.
    pub lambda: Lambda,
    /// The number of images per batch.
    pub batch: usize,
    /// K for batches of P classes with K images each, as the contrastive loss needs; P · K = `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_per_class: Option<usize>,
    /// The number of batches per step, whose gradients are averaged. All schedules count optimiser steps.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: u64,
    /// The maximum global norm of the gradients, to which larger ones are clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// The number of optimiser steps.
    pub steps: u64,
    /// The learning rate by step.
    pub learning_rate: LearningRate,
    /// The number of first steps in which the learning rate rises linearly to that of its schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warmup: u64,
    /// Stochastic gradient descent, the default [optimiser](Recipe::optimiser).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sgd: Option<Sgd>,
    /// AdamW instead of `sgd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adamw: Option<AdamW>,
    /// The seed of the initial weights, the order of the images and the augmentation.
    pub seed: u64,
    /// The precision of products.
    #[serde(default = "bf16")]
    pub precision: Precision,
    /// The number of steps between evaluations on the held-out images.
    pub evaluate_every: u64,
    /// Which model is kept at the end.
    #[serde(default, skip_serializing_if = "Keep::is_last")]
    pub keep: Keep,
    /// The number of evaluations on the held-out images without improvement after which the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<u64>,
    /// The decay of an exponential moving average of the weights, which is evaluated and kept instead of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<f64>,
    /// Whether each evaluation is also done on the test images, for a picture of the test error by step.
    /// Nothing is selected by it: neither the learning rate nor the model depends on these evaluations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub test_curve: bool,
    /// The number of steps between lines of the log.
    pub log_every: u64,
    /// The number of steps between checkpoints.
    pub checkpoint_every: u64,
    /// What to do when training diverges.
    #[serde(default)]
    pub on_divergence: OnDivergence,
}

/// Which model of a run is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// That of the last step.
    #[default]
    Last,
    /// The one with the lowest error on the held-out images; of several, the one with the lowest loss.
    Best,
}

impl Keep {
    fn is_last(&self) -> bool {
        *self == Self::Last
    }
}

/// What to do when training diverges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDivergence {
    /// End the run with an error.
    #[default]
    Stop,
    /// Return to the last good checkpoint and resume with a larger λ.
    Rollback,
}

/// A network, by name or by its description.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NetworkChoice {
    /// `mnist-2d`, `mnist`, `cifar10`, `cifar100` or `lfw`.
    Named(String),
    /// A description of its stages.
    Described(NetworkConfig),
}

/// An expected result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The paper's test error in percent.
    pub test_error: f64,
    /// The acceptable deviation from it.
    pub tolerance: f64,
}

/// The learning rate by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schedule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LearningRate {
    /// Multiplied by `factor` at fixed steps.
    Steps {
        /// The initial rate.
        rate: f64,
        /// The factor.
        factor: f64,
        /// The steps.
        at: Vec<u64>,
    },
    /// Multiplied by `factor` when the loss on the held-out images has not improved for `patience`
    /// evaluations; the run ends at the next plateau after `drops` drops.
    Plateau {
        /// The initial rate.
        rate: f64,
        /// The factor.
        factor: f64,
        /// The number of evaluations without improvement before a drop.
        patience: u64,
        /// The number of drops.
        drops: u64,
    },
    /// Half a cosine, from `rate` after the warm-up to `min`.
    Cosine {
        /// The initial rate.
        rate: f64,
        /// The last rate.
        #[serde(default)]
        min: f64,
        /// The step from which the rate is `min`; the end of the run if it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<u64>,
    },
}

impl LearningRate {
    /// The same schedule with another initial rate.
    pub fn with_rate(mut self, initial: f64) -> Self {
        match &mut self {
            Self::Steps { rate, .. } | Self::Plateau { rate, .. } | Self::Cosine { rate, .. } => {
                *rate = initial;
            }
        }
        self
    }

    /// The initial rate.
    pub fn rate(&self) -> f64 {
        match self {
            Self::Steps { rate, .. } | Self::Plateau { rate, .. } | Self::Cosine { rate, .. } => {
                *rate
            }
        }
    }
}

impl Recipe {
    /// Whether the loss depends on λ, unlike softmax and the hinge loss.
    pub fn has_margin(&self) -> bool {
        self.loss.uses_margin() && self.head.has_margin()
    }

    /// The optimiser.
    pub fn optimiser(&self) -> Optimiser {
        match self.adamw {
            Some(adamw) => adamw.into(),
            None => self.sgd.unwrap_or_default().into(),
        }
    }

    /// The recipe with another optimiser.
    pub fn with_optimiser(mut self, optimiser: impl Into<Optimiser>) -> Self {
        (self.sgd, self.adamw) = match optimiser.into() {
            Optimiser::Sgd(sgd) => (Some(sgd), None),
            Optimiser::AdamW(adamw) => (None, Some(adamw)),
        };
        self
    }

    /// The recipe with another network. The padding of random crops is at most an eighth of its input.
    pub fn with_network(mut self, network: NetworkConfig) -> Self {
        let [_, height, width] = network.input;
        self.augment.pad = self.augment.pad.min(height.min(width) / 8);
        self.network = NetworkChoice::Described(network);
        self
    }

    /// The validated description of the network.
    ///
    /// # Errors
    /// When no network has that name, or the layers do not fit together.
    pub fn network_config(&self) -> Result<NetworkConfig, RecipeError> {
        let config = self.network.config().and_then(|config| config.stack().map(|_| config));
        config.map_err(|error| check::InvalidSetting::network(&error).into_error(&self.name, None))
    }

    /// The expected result with the recipe's head, if known.
    pub fn expected_result(&self) -> Option<Expected> {
        let margin = self.head.margin().value();
        if !self.head.is_free() || self.head.is_sampled() {
            return None;
        }
        let is_margin = |key: &str| key.parse() == Ok(margin);
        self.expected.iter().find(|(key, _)| is_margin(key)).map(|(_, expected)| *expected)
    }

    /// The recipe with another head.
    ///
    /// λ stays, unless the head adds its margin to the angle or subtracts it from the cosine and the
    /// recipe's head does not: such a margin is usually there from the first step, so λ is then 0.
    pub fn with_head(mut self, head: HeadSettings) -> Self {
        let is_multiplied = |head: HeadSettings| matches!(head.margin(), HeadMargin::Multiplied(_));
        if is_multiplied(self.head) && !is_multiplied(head) {
            self.lambda = Lambda::constant(0.0).expect("0 is a λ");
        }
        self.head = head;
        self
    }
}

impl NetworkChoice {
    /// The description, looked up if it is a name.
    ///
    /// # Errors
    /// When no network has that name.
    pub fn config(&self) -> Result<NetworkConfig, NetworkError> {
        match self {
            Self::Named(name) => NetworkConfig::named(name),
            Self::Described(config) => Ok(config.clone()),
        }
    }
}

/// Implemented by hand, because the error of a derived untagged enum would not say what is wrong with
/// the description.
impl<'de> Deserialize<'de> for NetworkChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = NetworkChoice;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("the name or the description of a network")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<NetworkChoice, E> {
                Ok(NetworkChoice::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NetworkChoice, A::Error> {
                let description = NetworkConfig::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NetworkChoice::Described(description))
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

fn no_augmentation() -> Augment {
    Augment::NONE
}

fn one() -> u64 {
    1
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_one(count: &u64) -> bool {
    *count == 1
}

fn bf16() -> Precision {
    Precision::Bf16
}

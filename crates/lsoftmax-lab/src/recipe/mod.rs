//! What a training run is made of: data, network, loss, schedules.
//!
//! A recipe comes from a file, from the program ([`Recipe::built_in`]) or, for a folder of one's own
//! images, from their number ([`Recipe::for_folder`]). It is plain data: set its fields, then
//! [`Recipe::check`] it.
//!
//! ```
//! use lsoftmax_lab::recipe::Recipe;
//! let paper = Recipe::built_in("mnist")?;
//! let expected = paper.expected(paper.margin).expect("the paper has this margin");
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
mod read;
mod scaled;

use std::collections::BTreeMap;

use lsoftmax::{LambdaSchedule, Margin, Precision};
use lsoftmax_data::{Augment, DataSource};
use lsoftmax_nn::{NetworkConfig, NetworkError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use choice::ForDataError;
pub use error::{Position, RecipeError};

pub use crate::objective::Objective;
use crate::optimiser::Sgd;

/// A training run, as `recipes/*.toml` describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What it is called.
    pub name: String,
    /// Where it comes from: a row of a table of the paper, a figure.
    pub source: String,
    /// The result to come out by margin, where there is one to be expected: `"1"` is softmax.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expected: BTreeMap<String, Expected>,
    /// The data: `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, or the path of a folder of images.
    pub data: DataSource,
    /// How samples differ from epoch to epoch.
    #[serde(default = "no_augmentation")]
    pub augment: Augment,
    /// Training images held out to choose by.
    pub validation: usize,
    /// The network: a name, or a description.
    pub network: NetworkChoice,
    /// The loss.
    #[serde(default)]
    pub loss: Objective,
    /// The margin m.
    pub margin: Margin,
    /// λ by step.
    pub lambda: LambdaSchedule,
    /// Images per batch.
    pub batch: usize,
    /// Batches per step, whose gradients are averaged. Steps, λ and schedules count optimiser steps.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: u64,
    /// Gradients are scaled down to this norm, of all of them together, if theirs is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Optimiser steps.
    pub steps: u64,
    /// The learning rate by step.
    pub learning_rate: LearningRate,
    /// Momentum and weight decay.
    #[serde(default)]
    pub sgd: Sgd,
    /// What weights, order and augmentation are drawn from.
    pub seed: u64,
    /// The precision of products.
    #[serde(default = "bf16")]
    pub precision: Precision,
    /// Steps from one evaluation on the held-out images to the next.
    pub evaluate_every: u64,
    /// Steps from one line of the log to the next.
    pub log_every: u64,
    /// Steps from one checkpoint to the next.
    pub checkpoint_every: u64,
    /// What to do when training diverges.
    #[serde(default)]
    pub on_divergence: OnDivergence,
}

/// What to do when training diverges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDivergence {
    /// End the run and say why.
    #[default]
    Stop,
    /// Return to the last good checkpoint and resume with a larger λ.
    Rollback,
}

/// A network by its name, or described.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NetworkChoice {
    /// `mnist-2d`, `mnist`, `cifar10`, `cifar100` or `lfw`.
    Named(String),
    /// Stage by stage.
    Described(NetworkConfig),
}

/// The result to come out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The paper's test error in percent.
    pub test_error: f64,
    /// How far from it a run may end.
    pub tolerance: f64,
}

/// The learning rate by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schedule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LearningRate {
    /// Multiplied by `factor` at each of some steps.
    Steps {
        /// The first.
        rate: f64,
        /// What it is multiplied by.
        factor: f64,
        /// When.
        at: Vec<u64>,
    },
    /// Multiplied by `factor` when the loss of the held-out images has not fallen for `patience`
    /// evaluations; the run ends after `drops` of them and a last wait.
    Plateau {
        /// The first.
        rate: f64,
        /// What it is multiplied by.
        factor: f64,
        /// Evaluations to wait.
        patience: u64,
        /// How often it falls.
        drops: u64,
    },
}

impl LearningRate {
    /// The same schedule from another first rate.
    pub fn with_rate(mut self, first: f64) -> Self {
        match &mut self {
            Self::Steps { rate, .. } | Self::Plateau { rate, .. } => *rate = first,
        }
        self
    }
}

impl Recipe {
    /// Whether the loss depends on λ: softmax and the hinge loss do not.
    pub fn has_margin(&self) -> bool {
        self.loss.uses_margin() && self.margin.value() > 1.0
    }

    /// The description of the network, whose layers fit together.
    ///
    /// # Errors
    /// When there is no network of that name, or the layers do not fit.
    pub fn network_config(&self) -> Result<NetworkConfig, RecipeError> {
        let config = self.network.config().and_then(|config| config.stack().map(|_| config));
        config.map_err(|error| check::Fault::network(&error).of(&self.name, None))
    }

    /// The result to come out with this margin, if there is one to be expected.
    pub fn expected(&self, margin: Margin) -> Option<Expected> {
        let is_margin = |key: &str| key.parse() == Ok(margin.value());
        self.expected.iter().find(|(key, _)| is_margin(key)).map(|(_, expected)| *expected)
    }
}

impl NetworkChoice {
    /// The description, looked up if it is a name.
    ///
    /// # Errors
    /// When there is no network of that name.
    pub fn config(&self) -> Result<NetworkConfig, NetworkError> {
        match self {
            Self::Named(name) => NetworkConfig::named(name),
            Self::Described(config) => Ok(config.clone()),
        }
    }
}

/// By hand, because serde would say of a slip in a description only that it is no name either.
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

fn is_one(count: &u64) -> bool {
    *count == 1
}

fn bf16() -> Precision {
    Precision::Bf16
}

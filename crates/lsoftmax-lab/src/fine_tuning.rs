//! Starting a run from a trained model, with frozen units and a rate for the trunk.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use lsoftmax_data::Mean;
use serde::{Deserialize, Serialize};

use crate::model::Classifier;
use crate::model_file::{self, HeadOfFile, ModelDescription};
use crate::run::{RunDirectory, RunError};

/// A trained model to start from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Init {
    /// The directory of a finished run, or a safetensors file.
    pub from: PathBuf,
    /// The number of first units that stay as they are, weights and statistics.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub freeze: usize,
    /// The factor of the learning rate of the units that are trained; that of the head is 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub trunk_rate: f64,
}

impl Init {
    /// All of a model is trained, at the same rate.
    pub fn new(from: impl Into<PathBuf>) -> Self {
        Self { from: from.into(), freeze: 0, trunk_rate: 1.0 }
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn one() -> f64 {
    1.0
}

fn is_one(rate: &f64) -> bool {
    *rate == 1.0
}

/// The copy of the initial weights in the directory of a run.
pub(crate) const WEIGHTS: &str = "init.safetensors";
/// The copy of the description of the initial model, if it came from a run.
pub(crate) const DESCRIPTION: &str = "init.json";

/// The weights that a run starts from. They are copied into its directory, so that it can be resumed
/// whatever becomes of the original.
#[derive(Clone, Debug)]
pub(crate) struct InitialModel {
    path: PathBuf,
    weights: Vec<u8>,
    /// Missing if the weights came from a file of their own.
    description: Option<ModelDescription>,
}

impl InitialModel {
    /// Reads the model of a run or a file of weights.
    pub fn read(from: &Path) -> Result<Self, RunError> {
        if from.is_dir() {
            let (description, weights) = model_file::read_files(from)?;
            let path = from.join(model_file::WEIGHTS);
            return Ok(Self { path, weights, description: Some(description) });
        }
        if !from.exists() {
            let problem = "is neither a run nor a file of weights to start from; check --init";
            return Err(RunError::damaged(from, problem));
        }
        Self::read_weights(from, None)
    }

    fn read_weights(path: &Path, description: Option<ModelDescription>) -> Result<Self, RunError> {
        let weights = std::fs::read(path).map_err(RunError::io(path, "read"))?;
        Ok(Self { path: path.to_owned(), weights, description })
    }

    /// Reads the copy in the directory of a run.
    pub fn of_run(run: &RunDirectory) -> Result<Self, RunError> {
        let description = run.file(DESCRIPTION);
        let description = match description.is_file() {
            true => Some(model_file::read_description(&description)?),
            false => None,
        };
        Self::read_weights(&run.file(WEIGHTS), description)
    }

    /// Copies the model into the directory of a run.
    pub fn write(&self, run: &RunDirectory) -> Result<(), RunError> {
        if let Some(description) = &self.description {
            run.write_json(DESCRIPTION, description)?;
        }
        run.write(WEIGHTS, &self.weights)
    }

    /// The SHA-256 of the weights.
    pub fn digest(&self) -> String {
        model_file::sha256_of(&self.weights)
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the weights of a new model's network by these; its head stays.
    ///
    /// # Errors
    /// When the weights are not those of the model's network.
    pub fn apply_network(
        &self,
        model: Classifier,
        device: &Device,
    ) -> Result<Classifier, RunError> {
        let (model, _) = self.load(model, HeadOfFile::Ignored, device)?;
        Ok(model)
    }

    fn load(
        &self,
        model: Classifier,
        head: HeadOfFile,
        device: &Device,
    ) -> Result<(Classifier, bool), RunError> {
        model_file::load(model, &self.weights, head, device).map_err(|problem| {
            let problem =
                format!("does not fit the network of the recipe: {problem}; use its network");
            RunError::damaged(&self.path, problem)
        })
    }

    /// The mean image that the model was trained with, if it is known.
    pub fn mean(&self) -> Option<&Mean> {
        self.description.as_ref().map(|description| &description.mean)
    }

    /// Replaces the weights of a new model by these; the head's only if it is for the same classes. Returns
    /// a sentence about a head that starts anew.
    ///
    /// # Errors
    /// When the weights are not those of the model's network.
    pub fn apply(
        &self,
        model: Classifier,
        class_names: &[String],
        device: &Device,
    ) -> Result<(Classifier, Option<String>), RunError> {
        let names = self.description.as_ref().map(|description| &description.class_names);
        let (head, note) = match names {
            Some(names) if names != class_names => {
                let reason = match (names.len(), class_names.len()) {
                    (old, new) if old != new => format!("it was for {old} classes, not {new}"),
                    _ => "its classes have other names".to_owned(),
                };
                (HeadOfFile::Ignored, Some(reason))
            }
            _ => (HeadOfFile::IfItFits, None),
        };
        let (model, used) = self.load(model, head, device)?;
        let reason = note.or((!used).then(|| "it has another shape".to_owned()));
        let note = |reason| {
            format!(
                "the head of {} is not used, a new one is trained: {reason}",
                self.path.display()
            )
        };
        Ok((model, reason.map(note)))
    }
}

/// The model with its first units frozen.
pub(crate) fn frozen(mut model: Classifier, units: usize) -> Classifier {
    let all = std::mem::take(&mut model.network.units);
    let freeze = |(index, unit)| if index < units { Module::freeze(unit) } else { unit };
    model.network.units = all.into_iter().enumerate().map(freeze).collect();
    model
}

//! Starting and resuming a run, its events and its outcome.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use lsoftmax::{EngineError, Precision};
use lsoftmax_data::{DataDir, DataSource, is_among_images, shell_word};
use serde::{Deserialize, Serialize};

use super::data::TrainingData;
use super::trainer::{Trainer, TrainerState};
use super::{Phase, TrainError};
use crate::compute::Compute;
use crate::evaluate::Evaluation;
use crate::head::HeadSettings;
use crate::model_file;
use crate::recipe::{OnDivergence, Recipe};
use crate::run::{
    Checkpoint, ENVIRONMENT, Environment, METRICS, Metric, RECIPE, RunDirectory, RunError, SUMMARY,
    read_json,
};

/// Options of a run that are not part of the recipe.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where data sets are found.
    pub data: DataDir,
    /// The device to train on, without autodiff. The CPU ([`Device::flex`]) uses the fused kernels, other
    /// devices use Burn's own operations.
    pub device: Device,
    /// Whether to use Burn's own operations on the CPU too, for comparison.
    pub composed: bool,
    /// What to do when training diverges; overrides the recipe.
    pub on_divergence: Option<OnDivergence>,
    /// Whether to write event files for TensorBoard. A run that already has some always writes them.
    pub tensorboard: bool,
    /// When set, the run ends after the current step or batch of an evaluation.
    pub stop: Arc<AtomicBool>,
    /// Where the images of a resumed run are now, if they were moved. They must be the same images.
    pub moved_data: Option<DataSource>,
}

impl Options {
    /// Default options: on the CPU, with the recipe's behaviour on divergence.
    pub fn new(data: DataDir) -> Self {
        Self {
            data,
            device: Device::flex(),
            composed: false,
            on_divergence: None,
            tensorboard: false,
            stop: Arc::default(),
            moved_data: None,
        }
    }

    /// What computes a model of this precision.
    fn compute(&self, precision: Precision) -> Result<Compute, EngineError> {
        Compute::new(self.device.clone(), precision, self.composed)
    }
}

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run starts, or resumes, at a step.
    Started {
        /// The number of steps already done.
        step: u64,
        /// The total number of steps.
        steps: u64,
        /// Warnings for the user.
        notes: &'a [String],
    },
    /// Images are read or evaluated, between steps.
    Progress {
        /// What is done with them.
        phase: Phase,
        /// The number of images done.
        done: usize,
        /// The number of all these images.
        total: usize,
    },
    /// A step was taken.
    Stepped {
        /// Steps done.
        step: u64,
    },
    /// A line was added to the log.
    Logged(&'a Metric),
    /// A checkpoint was written.
    Checkpointed {
        /// Steps done.
        step: u64,
    },
}

/// How a run ended.
#[derive(Debug)]
pub enum RunOutcome {
    /// All steps were taken.
    Done(Box<RunSummary>),
    /// It was interrupted and can be resumed; one that was interrupted before it began left nothing.
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The recipe's name.
    pub recipe: String,
    /// The data.
    pub data: DataSource,
    /// The head; in older files the margin of L-Softmax.
    #[serde(alias = "margin")]
    pub head: HeadSettings,
    /// The seed.
    pub seed: u64,
    /// The number of steps taken.
    pub steps: u64,
    /// The number of images per batch.
    pub batch: usize,
    /// The final evaluation on the held-out images.
    pub validation: Option<Evaluation>,
    /// The evaluation on the test images, done once at the end.
    pub test: Option<Evaluation>,
    /// The training time in seconds.
    pub seconds: f64,
    /// The number of rollbacks to an earlier checkpoint.
    pub rollbacks: usize,
    /// The machine and the program version.
    pub environment: Environment,
}

/// Starts a run in a new directory.
///
/// # Errors
/// When the recipe, the data or the directory is invalid, or training diverges.
pub fn start(
    recipe: Recipe,
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunOutcome, TrainError> {
    let compute = options.compute(recipe.precision)?;
    if let DataSource::Folder(folder) = &recipe.data
        && is_among_images(folder, out)
    {
        return Err(TrainError::Fit(format!(
            "{} would be read as images of {}; choose another --out",
            out.display(),
            folder.display()
        )));
    }
    let data = TrainingData::read(&recipe, recipe.data.hold_out(), options, observe)?;
    let Some(data) = data else { return Ok(RunOutcome::Interrupted { step: 0 }) };
    let run = RunDirectory::create(out)?;
    let mut recipe = recipe;
    // So that the run can be resumed from any working directory.
    recipe.data = recipe.data.absolute();
    run.write_json(ENVIRONMENT, &Environment::current(&compute))?;
    run.write_recipe(&recipe.to_toml())?;
    Trainer::new(recipe, run, data, compute, options, None)?.run(Vec::new(), observe)
}

/// Resumes a run.
///
/// # Errors
/// When there is no run, its checkpoints are corrupt, its images have changed, or training diverges.
pub fn resume(
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunOutcome, TrainError> {
    let run = RunDirectory::open(out)?;
    let has = |name: &str| run.file(name).is_file();
    if [SUMMARY, model_file::DESCRIPTION, model_file::WEIGHTS].into_iter().all(has) {
        return Ok(RunOutcome::Done(Box::new(read_json(&run.file(SUMMARY))?)));
    }
    let mut recipe = Recipe::from_file(&run.file(RECIPE))?;
    if let Some(place) = &options.moved_data {
        recipe.data = place.clone().absolute();
    }
    let compute = options.compute(recipe.precision)?;
    let (checkpoint, mut notes) = newest(&run, None)?;
    if checkpoint.is_none() && has(METRICS) {
        notes.push("there is no checkpoint yet: the run starts over".into());
    }
    notes.extend(environment_note(&run, &Environment::current(&compute))?);
    let (step, hold_out) = match &checkpoint {
        Some(checkpoint) => (checkpoint.step, checkpoint.state.hold_out),
        None => (0, recipe.data.hold_out()),
    };
    require_folder(&recipe.data, out)?;
    let Some(data) = TrainingData::read(&recipe, hold_out, options, observe)? else {
        return Ok(RunOutcome::Interrupted { step });
    };
    let trainer = Trainer::new(recipe, run, data, compute, options, checkpoint)?;
    if options.moved_data.is_some() {
        trainer.write_recipe()?;
    }
    trainer.run(notes, observe)
}

/// A warning if the run started on another kernel path than `here`. Where it started is not known if
/// its file was lost or damaged, which is then written anew.
fn environment_note(run: &RunDirectory, here: &Environment) -> Result<Option<String>, RunError> {
    let started: Environment = match read_json(&run.file(ENVIRONMENT)) {
        Ok(started) => started,
        Err(error) => {
            run.write_json(ENVIRONMENT, here)?;
            return Ok(Some(format!("{error}; it is written anew, for this machine")));
        }
    };
    Ok((started.path != here.path).then(|| {
        format!(
            "the run started on kernel path {} and resumes on {}: its results will differ in the last bits from a run on either alone",
            started.path, here.path
        )
    }))
}

/// Fails if the images of a run are a folder that no longer exists.
fn require_folder(source: &DataSource, run: &Path) -> Result<(), TrainError> {
    match source {
        DataSource::Folder(folder) if !folder.exists() => Err(TrainError::Resume(format!(
            "{}: the images of the run are not there; if they were moved, use `lsoftmax train --resume {} --data FOLDER`",
            folder.display(),
            shell_word(run)
        ))),
        _ => Ok(()),
    }
}

/// The newest valid checkpoint, before a step if one is given, and a warning about each newer one that
/// is invalid.
///
/// # Errors
/// When there are checkpoints, but all are invalid.
pub(super) fn newest(
    run: &RunDirectory,
    before: Option<u64>,
) -> Result<(Option<Checkpoint<TrainerState>>, Vec<String>), TrainError> {
    let (checkpoint, complaints) = Checkpoint::newest(run, before)?;
    if checkpoint.is_none() && !complaints.is_empty() {
        return Err(TrainError::Resume(format!(
            "{} has no valid checkpoint: {}; start a new run with another --out",
            run.path().display(),
            complaints.join("; ")
        )));
    }
    let note = |complaint: String| format!("{complaint}; an older checkpoint is used");
    Ok((checkpoint, complaints.into_iter().map(note).collect()))
}

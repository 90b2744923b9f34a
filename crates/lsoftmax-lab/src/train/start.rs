//! How a run starts and resumes, what it reports meanwhile, and how it ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use lsoftmax::{Execution, Margin, Precision};
use lsoftmax_data::{DataDir, DataSource};
use serde::{Deserialize, Serialize};

use super::TrainError;
use super::data::TrainingData;
use super::trainer::{Trainer, TrainerState};
use crate::evaluate::Evaluation;
use crate::recipe::{OnDivergence, Recipe};
use crate::run::{Checkpoint, Environment, Metric, RunDirectory, read_json};

/// What the recipe does not say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where data sets are found.
    pub data: DataDir,
    /// The device to train on, without autodiff. On the CPU ([`Device::flex`]) the kernels compute, on others
    /// Burn's own operations do.
    pub device: Device,
    /// Whether Burn's own operations compute on the CPU too: to compare.
    pub composed: bool,
    /// What to do when training diverges, if not what the recipe says.
    pub on_divergence: Option<OnDivergence>,
    /// Threads that prepare batches ahead of need.
    pub loader_threads: usize,
    /// Whether to write event files for TensorBoard. A run that has some gets more in any case.
    pub tensorboard: bool,
    /// Set from outside to end the run after the step that is under way.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// A run on the CPU with these data sets, that stops on divergence and cannot be interrupted.
    pub fn new(data: DataDir) -> Self {
        Self {
            data,
            device: Device::flex(),
            composed: false,
            on_divergence: None,
            loader_threads: 1,
            tensorboard: false,
            stop: Arc::default(),
        }
    }

    /// What computes a model of this precision.
    pub(super) fn execution(&self, precision: Precision) -> Execution {
        if self.composed { Execution::Composed } else { Execution::new(precision) }
    }
}

/// What happens in a run, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run starts, or resumes, at a step.
    Started {
        /// Steps done before.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// The recipe.
        recipe: &'a Recipe,
        /// Sentences that the user should read.
        notes: &'a [String],
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
pub enum Ended {
    /// All steps were taken.
    Done(Box<RunSummary>),
    /// It was stopped from outside, and can be resumed.
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The recipe's name.
    pub recipe: String,
    /// The data.
    pub data: DataSource,
    /// The margin m.
    pub margin: Margin,
    /// The seed.
    pub seed: u64,
    /// Steps taken.
    pub steps: u64,
    /// Images of a batch.
    pub batch: usize,
    /// On the held-out images, at the end.
    pub validation: Option<Evaluation>,
    /// On the test images, evaluated once, at the end.
    pub test: Option<Evaluation>,
    /// Seconds of training.
    pub seconds: f64,
    /// Rollbacks to an earlier checkpoint.
    pub rollbacks: usize,
    /// The machine and the program.
    pub environment: Environment,
}

/// Starts a run in a new directory.
///
/// # Errors
/// When the recipe, the data or the directory will not do, or training diverges.
pub fn start(
    recipe: Recipe,
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Ended, TrainError> {
    options.execution(recipe.precision).engine()?;
    let data = TrainingData::read(&recipe, &options.data)?;
    let run = RunDirectory::create(out)?;
    let mut recipe = recipe;
    // So that the run can be resumed from any working directory.
    recipe.data = recipe.data.absolute();
    run.write_json("environment.json", &Environment::here(recipe.precision))?;
    run.write_recipe(&recipe.to_toml())?;
    Trainer::new(recipe, run, data, options, None)?.run(Vec::new(), observe)
}

/// Resumes a run where it stopped.
///
/// # Errors
/// When there is no run, its files are damaged, or training diverges.
pub fn resume(
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Ended, TrainError> {
    let run = RunDirectory::open(out)?;
    let has = |name: &str| run.file(name).is_file();
    if ["summary.json", "model.json", "model.safetensors"].into_iter().all(has) {
        return Ok(Ended::Done(Box::new(read_json(&run.file("summary.json"))?)));
    }
    let path = run.file("recipe.toml");
    let recipe = Recipe::from_toml(&run.recipe()?, &path.display().to_string())?;
    let data = TrainingData::read(&recipe, &options.data)?;
    let (checkpoint, mut notes) = newest(&run, None)?;
    if checkpoint.is_none() && has("metrics.jsonl") {
        notes.push("there is no checkpoint yet: the run starts again".into());
    }
    let started: Environment = read_json(&run.file("environment.json"))?;
    let here = Environment::here(recipe.precision);
    if started.path != here.path {
        notes.push(format!(
            "the run started on kernel path {} and resumes on {}: its results will differ in the last bits from a run on either alone",
            started.path, here.path
        ));
    }
    Trainer::new(recipe, run, data, options, checkpoint)?.run(notes, observe)
}

/// The newest checkpoint that can be used, of those before a step if one is given, and a sentence about
/// each newer one that cannot.
///
/// # Errors
/// When there are some, but none can be used.
pub(super) fn newest(
    run: &RunDirectory,
    before: Option<u64>,
) -> Result<(Option<Checkpoint<TrainerState>>, Vec<String>), TrainError> {
    let (checkpoint, complaints) = Checkpoint::newest(run, before)?;
    if checkpoint.is_none() && !complaints.is_empty() {
        return Err(TrainError::Resume(format!(
            "no checkpoint of {} can be used: {}; start again with another --out",
            run.path().display(),
            complaints.join("; ")
        )));
    }
    let note = |complaint: String| format!("{complaint}; an older checkpoint is used");
    Ok((checkpoint, complaints.into_iter().map(note).collect()))
}

//! Starting and resuming a run, its events and its outcome.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use lsoftmax::{EngineError, Precision};
use lsoftmax_comm::{Alone, Communicator};
use lsoftmax_data::{DataDir, DataSource, is_among_images, shell_word};
use serde::{Deserialize, Serialize};

use super::data::TrainingData;
use super::saving::TrainerState;
use super::selection::KeptModel;
use super::trainer::Trainer;
use super::training::Training;
use super::{Phase, TrainError, agreement};
use crate::compute::Compute;
use crate::evaluate::Evaluation;
use crate::fine_tuning::InitialModel;
use crate::head::HeadSettings;
use crate::model_file;
use crate::recipe::{OnDivergence, Recipe};
use crate::run::{
    Checkpoint, ENVIRONMENT, Environment, METRICS, Metric, RECIPE, RunDirectory, RunError, SUMMARY,
    TEST, read_json,
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
    /// Whether a new run may replace the one that is in its directory.
    pub overwrite: bool,
    /// Another length for a resumed run.
    pub new_length: Option<NewLength>,
    /// Where the images of a resumed run are now, if they were moved. They must be the same images.
    pub moved_data: Option<DataSource>,
    /// The ranks that train together. All of them start the same run.
    pub ranks: Arc<dyn Communicator>,
    /// Whether ranks may compute on different kernel paths.
    pub different_kernels: bool,
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
            overwrite: false,
            new_length: None,
            moved_data: None,
            ranks: Arc::new(Alone),
            different_kernels: false,
        }
    }

    /// What computes a model of this precision.
    fn compute(&self, precision: Precision) -> Result<Compute, EngineError> {
        let compute = Compute::new(self.device.clone(), precision, self.composed)?;
        Ok(compute.with_ranks(Arc::clone(&self.ranks)))
    }
}

/// Another length for a resumed run. The steps that are done stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLength {
    /// The number of all steps, including those that are done.
    pub steps: u64,
    /// Whether λ, learning rate and intervals are unchanged, with their last value beyond their end. Otherwise
    /// they are, from here on, those of a run of this length.
    pub keep_schedules: bool,
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
    /// It was interrupted before it began, and nothing was written.
    NotBegun,
    /// It was interrupted and can be resumed.
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
    /// Which model was kept. Older runs, which kept the last, lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptModel>,
    /// After how many steps the run was given another length, where that makes it another run than one of that length from the start:
    /// it had ended, and used the test images, or its schedules were stretched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_from: Vec<u64>,
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
    let recipe = Recipe { data: recipe.data.located(&options.data), ..recipe };
    if let DataSource::Folder(folder) = &recipe.data
        && is_among_images(folder, out)
    {
        return Err(TrainError::Fit(format!(
            "{} would be read as images of {}; choose another --out",
            out.display(),
            folder.display()
        )));
    }
    let initial = recipe.init.as_ref().map(|init| InitialModel::read(&init.from)).transpose()?;
    let mean = initial.as_ref().and_then(InitialModel::mean);
    let data = TrainingData::read(&recipe, recipe.data.hold_out(), mean, options, observe)?;
    if options.ranks.any(data.is_none()) {
        return Ok(RunOutcome::NotBegun);
    }
    let data = data.expect("no rank was interrupted");
    agreement::check(&recipe, &data.digest, initial.as_ref(), &compute, options)?;
    if initial.is_some() {
        // So that nothing is written for a model that does not fit.
        Training::new(&recipe, &recipe.network_config()?, &data, &compute, initial.as_ref())?;
    }
    // So that the run can be resumed from any working directory.
    let mut recipe = Recipe { data: recipe.data.absolute(), ..recipe };
    if let Some(init) = &mut recipe.init {
        init.from = std::path::absolute(&init.from).unwrap_or(init.from.clone());
    }
    require_text(&recipe)?;
    let run = RunDirectory::create_shared(out, options.overwrite, &options.ranks)?;
    if let Some(initial) = &initial {
        initial.write(&run)?;
    }
    run.write_json(ENVIRONMENT, &Environment::current(&compute))?;
    let trainer = Trainer::new(recipe, run, data, compute, options, initial)?;
    trainer.write_recipe()?;
    trainer.run(Vec::new(), observe)
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
    let run = RunDirectory::open_shared(out, &options.ranks)?;
    let summary = run.file(SUMMARY);
    let has = |name: &str| run.file(name).is_file();
    let is_done = [SUMMARY, model_file::DESCRIPTION, model_file::WEIGHTS].into_iter().all(has);
    // Of a run that was killed at its end, too.
    let has_ended = is_done || has(TEST);
    if is_done && options.new_length.is_none() && options.moved_data.is_none() {
        return Ok(RunOutcome::Done(Box::new(read_json(&summary)?)));
    }
    let mut recipe = Recipe::from_file(&run.file(RECIPE))?;
    if let Some(place) = &options.moved_data {
        recipe.data = place.clone().absolute();
    }
    let compute = options.compute(recipe.precision)?;
    let (checkpoint, mut notes) = newest(&run, None)?;
    // A kill may have come between the checkpoint of another length and the recipe.
    let changed = checkpoint.as_ref().and_then(|found| found.state.changed_length(&recipe));
    let unfinished_change = changed.is_some();
    recipe = changed.unwrap_or(recipe);
    if checkpoint.is_none() && has(METRICS) {
        notes.push("there is no checkpoint yet: the run starts over".into());
    }
    let here = Environment::current(&compute);
    match &checkpoint {
        Some(_) => notes.extend(environment_note(&run, &here)?),
        None => run.write_json(ENVIRONMENT, &here)?,
    }
    let (step, hold_out) = match &checkpoint {
        Some(checkpoint) => (checkpoint.step, checkpoint.state.hold_out),
        None => (0, recipe.data.hold_out()),
    };
    require_folder(&recipe.data, out)?;
    let initial = recipe.init.is_some().then(|| InitialModel::of_run(&run)).transpose()?;
    let mean = initial.as_ref().and_then(InitialModel::mean);
    let data = TrainingData::read(&recipe, hold_out, mean, options, observe)?;
    if options.ranks.any(data.is_none()) {
        return Ok(RunOutcome::Interrupted { step });
    }
    let data = data.expect("no rank was interrupted");
    agreement::check(&recipe, &data.digest, initial.as_ref(), &compute, options)?;
    let mut trainer = Trainer::new(recipe, run, data, compute, options, initial)?;
    if let Some(checkpoint) = checkpoint {
        trainer.load(checkpoint)?;
    }
    if unfinished_change {
        trainer.finish_changing_length()?;
    }
    if options.moved_data.is_some() {
        trainer.write_recipe()?;
    }
    if let Some(length) = options.new_length.filter(|length| length.steps != trainer.recipe.steps) {
        let recipe = with_length(&trainer, length, out)?;
        trainer.change_length(recipe, has_ended)?;
    } else if is_done && options.moved_data.is_none() {
        return Ok(RunOutcome::Done(Box::new(read_json(&summary)?)));
    }
    // If it is done and its images were moved, it ends once more, so that the description of the model names their new place.
    trainer.run(notes, observe)
}

/// The recipe of a run with another length.
fn with_length(
    trainer: &Trainer<'_>,
    NewLength { steps, keep_schedules }: NewLength,
    out: &Path,
) -> Result<Recipe, TrainError> {
    let (out, done) = (out.display(), trainer.step);
    if done == 0 {
        return Err(TrainError::Resume(format!(
            "{out} has no checkpoint yet; resume it without --steps, or start a new run"
        )));
    }
    if steps < done {
        return Err(TrainError::Resume(format!(
            "{out} has already taken {done} steps; give --steps of at least that, or start a new run"
        )));
    }
    if trainer.ends_early() {
        return Err(TrainError::Resume(format!(
            "{out} ended at step {done} because the held-out images no longer improved, and would end again; start a new run"
        )));
    }
    let recipe = &trainer.recipe;
    let recipe = if keep_schedules { recipe.with_steps(steps) } else { recipe.scaled(steps) };
    recipe.check()?;
    Ok(recipe)
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

/// Fails if a path in the recipe is not text, which its file could not hold.
fn require_text(recipe: &Recipe) -> Result<(), TrainError> {
    let folder = match &recipe.data {
        DataSource::Folder(folder) => Some(folder),
        DataSource::Set(_) => None,
    };
    let paths = folder.into_iter().chain(recipe.init.as_ref().map(|init| &init.from));
    match paths.into_iter().find(|path| path.to_str().is_none()) {
        None => Ok(()),
        Some(path) => Err(TrainError::Fit(format!(
            "{}: the path is not valid UTF-8, so that the recipe cannot name it; rename the directory or file",
            path.display()
        ))),
    }
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
    run.send_checkpoints()?;
    // Only rank 0 has the shards and knows whether they are whole.
    let ranks = run.ranks();
    let (mut checkpoint, mut complaints) = (None, Vec::new());
    if ranks.is_first() {
        (checkpoint, complaints) = Checkpoint::newest(run, before)?;
    }
    let step = checkpoint.as_ref().map(|found: &Checkpoint<TrainerState>| found.step);
    let step = ranks.broadcast(step.map_or(Vec::new(), |step| step.to_le_bytes().to_vec()));
    if let (false, Some(step)) = (ranks.is_first(), step.first_chunk()) {
        let step = u64::from_le_bytes(*step);
        (checkpoint, complaints) = Checkpoint::newest(run, Some(step.saturating_add(1)))?;
    }
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

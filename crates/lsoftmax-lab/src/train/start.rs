//! How a run begins and goes on, what it tells meanwhile, and what it comes to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lsoftmax::{Engine, Margin};
use serde::{Deserialize, Serialize};

use super::TrainError;
use super::material::Material;
use super::trainer::{State, Trainer};
use crate::data::{DataDir, Set};
use crate::evaluate::Evaluation;
use crate::recipe::{OnDivergence, Recipe};
use crate::run::{Checkpoint, Environment, Metric, RunDirectory, read_json};

/// What the recipe does not say.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where data are found.
    pub data: DataDir,
    /// What to do when training goes nowhere, if not what the recipe says.
    pub on_divergence: Option<OnDivergence>,
    /// Threads that make batches ahead of need.
    pub loader_threads: usize,
    /// Whether to write event files for TensorBoard. A run that has some gets more in any case.
    pub tensorboard: bool,
    /// Set from outside to end the run after the step that is under way.
    pub stop: Arc<AtomicBool>,
}

/// What happens in a run, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run begins, or goes on, at a step.
    Began {
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
    Kept {
        /// Steps done.
        step: u64,
    },
}

/// How a run ended.
#[derive(Debug)]
pub enum Ended {
    /// All steps were taken.
    Done(Box<Summary>),
    /// It was stopped from outside, and can go on.
    Interrupted {
        /// Steps done.
        step: u64,
    },
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The recipe's name.
    pub recipe: String,
    /// The data.
    pub data: String,
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
    /// On the test images, looked at once, at the end.
    pub test: Option<Evaluation>,
    /// Seconds of training.
    pub seconds: f64,
    /// Returns to an earlier checkpoint.
    pub rollbacks: usize,
    /// The machine and the program.
    pub environment: Environment,
}

/// Begins a run in a new directory.
///
/// # Errors
/// When the recipe, the data or the directory will not do, or training diverges.
pub fn start(
    recipe: Recipe,
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Ended, TrainError> {
    Engine::new(recipe.precision)?;
    let material = Material::new(&recipe, &options.data)?;
    let run = RunDirectory::create(out)?;
    let recipe = findable(recipe);
    let environment = Environment::here(recipe.precision);
    run.write_json("environment.json", &environment)?;
    run.write_recipe(&recipe.to_toml())?;
    Trainer::new(recipe, run, material, options, None)?.run(Vec::new(), observe)
}

/// The recipe with the whole path of its folder, if that is its data: a run can be resumed from any
/// working directory.
fn findable(mut recipe: Recipe) -> Recipe {
    if Set::named(&recipe.data).is_none()
        && let Ok(path) = std::path::absolute(&recipe.data)
        && let Some(path) = path.to_str()
    {
        recipe.data = path.to_owned();
    }
    recipe
}

/// Goes on with a run where it stopped.
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
    let material = Material::new(&recipe, &options.data)?;
    let (checkpoint, mut notes) = newest(&run, None)?;
    if checkpoint.is_none() && has("metrics.jsonl") {
        notes.push("there is no checkpoint yet: the run begins again".into());
    }
    let began: Environment = read_json(&run.file("environment.json"))?;
    let here = Environment::here(recipe.precision);
    if began.path != here.path {
        notes.push(format!(
            "the run began on kernel path {} and goes on on {}: the last bits will be others than on either alone",
            began.path, here.path
        ));
    }
    Trainer::new(recipe, run, material, options, checkpoint)?.run(notes, observe)
}

/// The newest checkpoint that can be used, of those before a step if one is given, and a sentence about
/// each newer one that cannot.
///
/// # Errors
/// When there are some, but none can be used.
pub(super) fn newest(
    run: &RunDirectory,
    before: Option<u64>,
) -> Result<(Option<Checkpoint<State>>, Vec<String>), TrainError> {
    let (checkpoint, complaints) = Checkpoint::newest(run, before)?;
    if checkpoint.is_none() && !complaints.is_empty() {
        return Err(TrainError::Resume(format!(
            "no checkpoint of {} can be used: {}; begin again with another --out",
            run.path().display(),
            complaints.join("; ")
        )));
    }
    let note = |complaint: String| format!("{complaint}; an older checkpoint is used");
    Ok((checkpoint, complaints.into_iter().map(note).collect()))
}

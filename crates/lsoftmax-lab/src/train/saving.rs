//! What a checkpoint contains, how it is written and restored, and how a run gets another length.

use lsoftmax_data::HoldOut;
use lsoftmax_nn::NetworkConfig;
use serde::{Deserialize, Serialize};

use super::auto_lambda::AutoLambda;
use super::journal::{Observer, PendingSteps};
use super::rate::RateState;
use super::selection::{Best, MovingAverage};
use super::trainer::Trainer;
use super::training::{Records, Training};
use super::{Event, TrainError};
use crate::fine_tuning::InitialModel;
use crate::model_file;
use crate::recipe::{Lambda, Recipe};
use crate::run::{Checkpoint, METRICS, Rollback, SUMMARY, TEST, keep_only};

/// The state in a checkpoint besides model and optimiser.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TrainerState {
    /// The network and the number of classes of the model.
    network: NetworkConfig,
    classes: usize,
    /// The digest of the training data.
    data: String,
    /// How images were held out; as before there was a choice if this is missing.
    #[serde(default)]
    pub hold_out: HoldOut,
    /// The recipe as TOML.
    recipe: String,
    /// The digest of the weights that the run started from, if they were not random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    init: Option<String>,
    rate: RateState,
    #[serde(default)]
    auto_lambda: AutoLambda,
    /// The best evaluation so far, if something depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    /// The lengths with which the run had ended before it was extended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extended_from: Vec<u64>,
    /// The recipe before this checkpoint changed its length, as TOML. `recipe.toml` may still be that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipe_before: Option<String>,
    /// Whether the evaluations of this step were interrupted, and are still to be made.
    #[serde(default)]
    evaluation_due: bool,
    #[serde(rename = "returns")]
    rollbacks: Vec<Rollback>,
    /// The length of the log in bytes.
    log: u64,
    #[serde(rename = "window")]
    pending: PendingSteps,
    seconds: f64,
}

impl TrainerState {
    /// The recipe, if this checkpoint gave the run of `recipe` another length.
    pub fn changed_length(&self, recipe: &Recipe) -> Option<Recipe> {
        let read = |text: &str| Recipe::from_toml(text, "the checkpoint's recipe").ok();
        let moved = |read: Recipe| Recipe { data: recipe.data.clone(), ..read };
        let before = read(self.recipe_before.as_ref()?).map(moved);
        if before.as_ref() != Some(recipe) {
            return None;
        }
        read(&self.recipe).map(moved)
    }
}

impl Trainer<'_> {
    /// Continues with another number of steps. The results of the shorter run, if it was done, are removed.
    pub(super) fn change_length(
        &mut self,
        recipe: Recipe,
        was_done: bool,
    ) -> Result<(), TrainError> {
        // The automatic λ depends on the number of steps.
        let is_auto = matches!(recipe.lambda, Lambda::Auto(_));
        if was_done || is_auto || recipe != self.recipe.with_steps(recipe.steps) {
            self.extended_from.push(self.step);
        }
        // A run that is to end here ends with an evaluation.
        self.evaluation_due |=
            self.step == recipe.steps && !self.is_due(self.recipe.evaluate_every);
        // In this order a kill leaves a run that resumes, with the old length or with the new one.
        self.run.remove(SUMMARY)?;
        let before = std::mem::replace(&mut self.recipe, recipe).to_toml();
        self.write_checkpoint(Some(before), &mut |_| {})?;
        self.finish_changing_length()
    }

    /// Removes what belongs to the run as it was, after its checkpoint has another length.
    pub(super) fn finish_changing_length(&self) -> Result<(), TrainError> {
        keep_only(&self.run, self.step)?;
        self.write_recipe()?;
        let results = [SUMMARY, TEST, model_file::DESCRIPTION, model_file::WEIGHTS];
        for name in results.into_iter().chain([model_file::LAST_WEIGHTS]) {
            self.run.remove(name)?;
        }
        Ok(())
    }

    /// Writes a checkpoint, if the weights are finite.
    pub(super) fn checkpoint(&mut self, observe: &mut Observer<'_>) -> Result<(), TrainError> {
        self.write_checkpoint(None, observe)
    }

    fn write_checkpoint(
        &mut self,
        recipe_before: Option<String>,
        observe: &mut Observer<'_>,
    ) -> Result<(), TrainError> {
        self.check_weights()?;
        let state = TrainerState {
            network: self.network.clone(),
            classes: self.data.classes,
            data: self.data.digest.clone(),
            hold_out: self.data.hold_out,
            recipe: self.recipe.to_toml(),
            init: self.initial.as_ref().map(InitialModel::digest),
            rate: self.rate,
            auto_lambda: self.auto_lambda,
            best: self.best.as_ref().map(|(best, _)| *best),
            extended_from: self.extended_from.clone(),
            recipe_before,
            evaluation_due: self.evaluation_due,
            rollbacks: self.rollbacks.clone(),
            log: self.journal.sync()?,
            pending: self.journal.pending,
            seconds: self.seconds,
        };
        let step = self.step;
        // The files of shards come first: the checkpoint has their digests.
        let Records { model, optimiser, shards } = self.training.records(&self.run, step)?;
        let best = self.best.as_ref().map(|(_, weights)| weights.clone()).unwrap_or_default();
        let average = self.average.as_ref().zip(self.training.whole());
        let average = average.map(|(average, model)| average.to_bytes(model)).unwrap_or_default();
        Checkpoint { step, state, model, optimiser, best, average, shards }.write(&self.run)?;
        observe(Event::Checkpointed { step });
        Ok(())
    }

    /// Restores a checkpoint, which must belong to this run.
    pub(super) fn load(&mut self, checkpoint: Checkpoint<TrainerState>) -> Result<(), TrainError> {
        let Checkpoint { step, state, model, optimiser, best, average, shards } = checkpoint;
        let run = self.run.path().display();
        if (&state.network, state.classes) != (&self.network, self.data.classes) {
            return Err(TrainError::Resume(format!(
                "the checkpoint of step {step} in {run} has another network than the recipe; restore the recipe that the run started with"
            )));
        }
        if state.data != self.data.digest {
            return Err(TrainError::Resume(format!(
                "the images of {} are not those that the run in {run} started with; restore those, or start a new run with another --out",
                self.recipe.data
            )));
        }
        // By value: a key that an older version of the program did not write has its default. The digest
        // shows that the images are the same, wherever they are.
        let kept = Recipe::from_toml(&state.recipe, "the checkpoint's recipe").ok();
        let kept = kept.map(|kept| Recipe { data: self.recipe.data.clone(), ..kept });
        if kept.as_ref() != Some(&self.recipe) {
            return Err(TrainError::Resume(format!(
                "the recipe in {run} is not the one that the run started with; restore that, or start a new run with another --out"
            )));
        }
        if state.init != self.initial.as_ref().map(InitialModel::digest) {
            return Err(TrainError::Resume(format!(
                "the initial weights in {run} are not those that the run started from; restore those, or start a new run with another --out"
            )));
        }
        let incompatible = |error: String| {
            TrainError::Resume(format!(
                "the checkpoint of step {step} in {run} was written by another version of the program ({error}); use that version, or start a new run"
            ))
        };
        let records = Records { model, optimiser, shards };
        let loaded = Training::load(self.fresh()?, records, &self.recipe, &self.run, step)?;
        self.training = loaded.map_err(incompatible)?;
        self.notes.clear();
        let average = self.recipe.average.zip(self.training.whole()).map(|(decay, model)| {
            MovingAverage::from_bytes(decay, &average, model).map_err(incompatible)
        });
        self.average = average.transpose()?;
        self.best = state.best.map(|found| (found, best));
        self.extended_from = state.extended_from;
        if !self.journal.rewind(state.log, state.pending)? {
            self.notes.push(format!(
                "{METRICS} has lost some of the lines before step {step}; the run continues without them"
            ));
        }
        self.step = step;
        (self.rate, self.auto_lambda) = (state.rate, state.auto_lambda);
        (self.evaluation_due, self.validated) = (state.evaluation_due, None);
        (self.rollbacks, self.seconds) = (state.rollbacks, state.seconds);
        Ok(())
    }
}

//! The training loop, with logging, evaluation and checkpoints.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::module::Module;
use lsoftmax_data::Prefetch;
use lsoftmax_nn::NetworkConfig;

use super::auto_lambda::{AutoLambda, Position};
use super::data::TrainingData;
use super::divergence::{Divergence, Settings, check_norm};
use super::journal::{Journal, Observer, PendingSteps};
use super::rate::{Rate, RateState};
use super::recovery::{self, RollbackTarget};
use super::selection::{Best, KeptModel, MovingAverage, from_bytes};
use super::start::newest;
use super::training::Training;
use super::{Event, Options, RunOutcome, RunSummary, TrainError};
use crate::batch::LabelledImages;
use crate::compute::Compute;
use crate::evaluate::{EvaluateError, Evaluation};
use crate::fine_tuning::InitialModel;
use crate::learner::{StepError, StepSettings};
use crate::model::Classifier;
use crate::model_file::{self, ModelDescription, to_safetensors};
use crate::recipe::{Keep, Lambda, Recipe};
use crate::run::{Environment, Metric, Rollback, RunDirectory, RunError, SUMMARY, TEST, prune};

/// Threads that prefetch batches. One makes many times what any CPU trains on.
const LOADER_THREADS: usize = 1;

pub(super) struct Trainer<'a> {
    pub(super) recipe: Recipe,
    pub(super) network: NetworkConfig,
    pub(super) run: RunDirectory,
    pub(super) data: TrainingData,
    pub(super) compute: Compute,
    /// What the run starts from, if not from random weights.
    pub(super) initial: Option<InitialModel>,
    pub(super) options: &'a Options,
    pub(super) training: Training,
    pub(super) journal: Journal,
    pub(super) step: u64,
    pub(super) rate: RateState,
    /// Follows the metrics if the recipe's λ is automatic.
    pub(super) auto_lambda: AutoLambda,
    /// The best evaluation so far, if something depends on it, and its weights, if they may be kept.
    pub(super) best: Option<(Best, Vec<u8>)>,
    /// The moving average of the weights, if the recipe asks for it.
    pub(super) average: Option<MovingAverage>,
    /// The lengths with which the run had ended before it was extended.
    pub(super) extended_from: Vec<u64>,
    /// Whether the evaluations of the current step are still to be made.
    pub(super) evaluation_due: bool,
    /// The last evaluation on the held-out images, and its step.
    pub(super) validated: Option<(u64, Evaluation)>,
    pub(super) rollbacks: Vec<Rollback>,
    pub(super) seconds: f64,
    /// Warnings for the user.
    pub(super) notes: Vec<String>,
}

impl<'a> Trainer<'a> {
    /// A trainer at the start of the run. Nothing is written.
    pub fn new(
        recipe: Recipe,
        run: RunDirectory,
        data: TrainingData,
        compute: Compute,
        options: &'a Options,
        initial: Option<InitialModel>,
    ) -> Result<Self, TrainError> {
        let network = recipe.network_config()?;
        let (training, note) = Training::new(&recipe, &network, &data, &compute, initial.as_ref())?;
        Ok(Self {
            average: first_average(&recipe, &training),
            best: None,
            extended_from: Vec::new(),
            training,
            journal: Journal::open(&run)?,
            recipe,
            network,
            run,
            data,
            compute,
            initial,
            options,
            step: 0,
            rate: RateState::default(),
            auto_lambda: AutoLambda::default(),
            evaluation_due: false,
            validated: None,
            rollbacks: Vec::new(),
            seconds: 0.0,
            notes: note.into_iter().collect(),
        })
    }

    /// Writes the recipe: at the start, or after a change that the checkpoint permits.
    pub fn write_recipe(&self) -> Result<(), RunError> {
        self.run.write_recipe(&self.recipe.to_toml())
    }

    /// Trains to the end, or until it is interrupted.
    pub fn run(
        mut self,
        mut notes: Vec<String>,
        observe: &mut Observer<'_>,
    ) -> Result<RunOutcome, TrainError> {
        let (step, steps) = (self.step, self.recipe.steps);
        if step == 0 && self.rollbacks.is_empty() {
            self.clear_log()?;
        }
        notes.append(&mut self.notes);
        if let Training::Sharded(learner) = &self.training {
            notes.push(learner.division());
        }
        self.journal.open_tensorboard(&self.run, step, self.options.tensorboard)?;
        observe(Event::Started { step, steps, notes: &notes });
        loop {
            match self.train(observe) {
                Ok(ControlFlow::Continue(())) => return self.finish(observe),
                Ok(ControlFlow::Break(())) => {
                    return Ok(RunOutcome::Interrupted { step: self.step });
                }
                Err(TrainError::Divergence(reason)) => self.roll_back(reason, observe)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the remaining steps. Breaks if it was interrupted.
    fn train(&mut self, observe: &mut Observer<'_>) -> Result<ControlFlow<()>, TrainError> {
        let steps = self.recipe.steps;
        let accumulate = self.recipe.accumulate;
        let batches = self.step.saturating_mul(accumulate)..steps.saturating_mul(accumulate);
        let mut batches = self.data.loader.prefetch(batches, LOADER_THREADS);
        let started = (Instant::now(), self.seconds);
        if self.evaluation_due {
            let settings = self.settings(self.next_settings());
            if self.end_step(settings, observe)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.journal.restart_clock();
        while self.step < steps && !self.ends_early() {
            if self.options.ranks.any(self.options.stop.load(Ordering::Relaxed)) {
                self.checkpoint(observe)?;
                return Ok(ControlFlow::Break(()));
            }
            let settings = self.take_step(&mut batches)?;
            self.seconds = started.1 + started.0.elapsed().as_secs_f64();
            observe(Event::Stepped { step: self.step });
            if self.after_step(settings, observe)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes one step, and returns its λ and learning rate.
    fn take_step(&mut self, batches: &mut Prefetch) -> Result<Settings, TrainError> {
        let next = self.next_settings();
        let settings = self.settings(next);
        let step = self.step + 1;
        let device = self.compute.device.clone().autodiff();
        let accumulate = self.recipe.accumulate as usize;
        let batches = (0..accumulate).map(|_| {
            let batch = batches.next().expect("there are batches for every step");
            LabelledImages::new(batch, &device)
        });
        let differ = self.options.different_kernels && self.options.ranks.size() > 1;
        let metrics = match self.training.step(batches, next, &self.compute, differ) {
            Ok(metrics) => metrics,
            Err(StepError::NotFinite(what)) => {
                return Err(Divergence::NotFinite { step, what, settings }.into());
            }
            Err(StepError::Model(error)) => return Err(error.into()),
        };
        self.step = step;
        if let (Some(average), Some(model)) = (&mut self.average, self.training.whole()) {
            average.add(model, step);
        }
        if let Lambda::Auto(rule) = self.recipe.lambda {
            let relative_rate = self.schedule().at(step) / self.recipe.learning_rate.rate();
            let least = rule.lower_bound(self.recipe.head.margin(), relative_rate);
            let position = Position { done: step, steps: self.recipe.steps, least };
            self.auto_lambda.next(&metrics, position, rule);
        }
        self.journal.add_step(metrics, (accumulate * self.recipe.batch) as u64);
        check_norm(step, metrics.feature_norm, settings)?;
        Ok(settings)
    }

    /// Logs, evaluates and writes a checkpoint if due. Breaks if an evaluation was interrupted.
    fn after_step(
        &mut self,
        settings: Settings,
        observe: &mut Observer<'_>,
    ) -> Result<ControlFlow<()>, TrainError> {
        let log = self.is_due(self.recipe.log_every);
        self.evaluation_due = self.is_due(self.recipe.evaluate_every);
        let pause = log || self.evaluation_due;
        if log {
            self.journal.log_training(self.step, settings, observe)?;
        }
        let ended = self.end_step(settings, observe)?;
        if pause {
            self.journal.restart_clock();
        }
        Ok(ended)
    }

    /// Evaluates and writes a checkpoint if due. Breaks if an evaluation was interrupted; the checkpoint
    /// then says that it is still due.
    fn end_step(
        &mut self,
        settings: Settings,
        observe: &mut Observer<'_>,
    ) -> Result<ControlFlow<()>, TrainError> {
        if self.evaluation_due {
            match self.evaluate(settings, observe) {
                Err(TrainError::Evaluate(EvaluateError::Interrupted)) => {
                    self.checkpoint(observe)?;
                    return Ok(ControlFlow::Break(()));
                }
                evaluated => evaluated?,
            }
            self.evaluation_due = false;
        }
        if self.is_due(self.recipe.checkpoint_every) || self.ends_early() {
            self.checkpoint(observe)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether something is due that happens every so many steps, and after the last.
    pub(super) fn is_due(&self, every: u64) -> bool {
        self.step.is_multiple_of(every) || self.step == self.recipe.steps
    }

    /// Whether the run ends before its last step: at a plateau, or without improvement.
    pub fn ends_early(&self) -> bool {
        let waited = self.best.as_ref().map_or(0, |(best, _)| best.waited);
        self.schedule().is_done()
            || self.recipe.early_stopping.is_some_and(|evaluations| waited >= evaluations)
    }

    pub(super) fn schedule(&self) -> Rate<'_> {
        Rate::new(&self.recipe, self.rate)
    }

    /// The hyperparameters of the next step. λ does not fall below the bound set by the last rollback.
    pub(super) fn next_settings(&self) -> StepSettings {
        let lambda = match &self.recipe.lambda {
            Lambda::Auto(_) => self.auto_lambda.lambda,
            Lambda::Schedule(schedule) => schedule.at(self.step),
        };
        let lambda = lambda.max(recovery::lambda_floor(&self.rollbacks));
        StepSettings { lambda, rate: self.schedule().at(self.step), step: self.step }
    }

    /// The hyperparameters that the log and the advice on divergence name.
    pub(super) fn settings(&self, StepSettings { lambda, rate, .. }: StepSettings) -> Settings {
        Settings { rate, lambda: self.recipe.has_margin().then_some(lambda) }
    }

    /// The last step's result, which no loss has seen, must be finite.
    pub(super) fn check_weights(&self) -> Result<(), Divergence> {
        if self.training.is_finite() {
            return Ok(());
        }
        let settings = self.settings(self.next_settings());
        let what = "a weight is not finite".into();
        Err(Divergence::NotFinite { step: self.step, what, settings })
    }

    /// The current model for inference, if every rank has all of it: the averaged one if the recipe asks for it.
    pub(super) fn current_model(&self) -> Option<Classifier> {
        let model = self.training.whole()?;
        Some(match &self.average {
            Some(average) => average.model(model),
            None => model.valid(),
        })
    }

    /// Compares an evaluation of the current model with the best one.
    pub(super) fn select(&mut self, step: u64, found: Evaluation) {
        let keeps = self.recipe.keep == Keep::Best;
        if !keeps && self.recipe.early_stopping.is_none() {
            return;
        }
        let (before, weights) = self.best.take().unzip();
        let best = Best::next(before, step, found);
        let weights = match weights {
            _ if keeps && best.step == step => {
                self.current_model().map_or(Vec::new(), |model| to_safetensors(&model))
            }
            weights => weights.unwrap_or_default(),
        };
        self.best = Some((best, weights));
    }

    /// The best evaluation, if its model is kept.
    pub(super) fn best_kept(&self) -> Option<Best> {
        self.best.as_ref().filter(|_| self.recipe.keep == Keep::Best).map(|(best, _)| *best)
    }

    /// The model that is kept, for inference, if every rank has all of it.
    fn kept_model(&self) -> Result<Option<Classifier>, TrainError> {
        let (Some(best), Some((_, weights)), Some(model)) =
            (self.best_kept(), &self.best, self.training.whole())
        else {
            return Ok(self.current_model());
        };
        from_bytes(weights, model).map(Some).map_err(|problem| {
            TrainError::Resume(format!("the best model, of step {}, {problem}", best.step))
        })
    }

    /// Returns to an earlier checkpoint or the start of the run, with a larger λ.
    fn roll_back(
        &mut self,
        reason: Divergence,
        observe: &mut Observer<'_>,
    ) -> Result<(), TrainError> {
        let (from, next) = (self.step, self.next_settings());
        let settings = self.settings(next);
        let on_divergence = self.options.on_divergence.unwrap_or(self.recipe.on_divergence);
        let finding = reason.finding();
        let target = recovery::target(reason, from, settings, on_divergence, &self.rollbacks)?;
        let (earlier, seconds) = (std::mem::take(&mut self.rollbacks), self.seconds);
        let checkpoint = match target {
            RollbackTarget::Start => None,
            RollbackTarget::Newest => newest(&self.run, None)?.0,
            RollbackTarget::Before(step) => newest(&self.run, Some(step))?.0,
        };
        match checkpoint {
            Some(checkpoint) => self.load(checkpoint)?,
            None => {
                self.training = self.fresh()?;
                self.average = first_average(&self.recipe, &self.training);
                self.best = None;
                self.clear_log()?;
                (self.step, self.rate) = (0, RateState::default());
                self.auto_lambda = AutoLambda::default();
                (self.evaluation_due, self.validated) = (false, None);
            }
        }
        // The log was truncated, and with it the rollbacks since the checkpoint.
        for rollback in &earlier[self.rollbacks.len()..] {
            self.journal.add(&Metric::Rollback(rollback.clone()))?;
        }
        // The time of the steps that are undone counts, too.
        (self.rollbacks, self.seconds) = (earlier, seconds);
        let rollback = recovery::rollback(from, self.step, next.lambda, finding);
        self.journal.log(&Metric::Rollback(rollback.clone()), observe)?;
        self.rollbacks.push(rollback);
        // So that the rollback is not lost if the run is resumed.
        self.checkpoint(&mut |_| {})
    }

    /// Removes all lines from the log, for a run from its first step.
    fn clear_log(&mut self) -> Result<(), RunError> {
        self.journal.rewind(0, PendingSteps::default()).map(|_| ())
    }

    /// The model at the start of the run.
    pub(super) fn fresh(&self) -> Result<Training, TrainError> {
        let initial = self.initial.as_ref();
        let fresh = Training::new(&self.recipe, &self.network, &self.data, &self.compute, initial)?;
        Ok(fresh.0)
    }

    /// Evaluates the model and writes the model, the details of the test images and the summary.
    fn finish(self, observe: &mut Observer<'_>) -> Result<RunOutcome, TrainError> {
        let model = self.kept_model()?;
        let (validation, test) = match self.final_evaluations(model.as_ref(), observe) {
            Err(TrainError::Evaluate(EvaluateError::Interrupted)) => {
                return Ok(RunOutcome::Interrupted { step: self.step });
            }
            found => found?,
        };
        let kept = KeptModel {
            model: self.recipe.keep,
            step: self.best_kept().map_or(self.step, |best| best.step),
            averaged: self.average.is_some(),
        };
        if let (Keep::Best, Some(last)) = (kept.model, self.current_model()) {
            self.run.write(model_file::LAST_WEIGHTS, &to_safetensors(&last))?;
        }
        let mean = self.data.loader.mean();
        let Recipe { name, data, head, seed, batch, .. } = self.recipe;
        let description = ModelDescription {
            version: model_file::VERSION,
            recipe: name.clone(),
            data: data.clone(),
            seed,
            digest: self.data.digest,
            hold_out: self.data.hold_out,
            weights_sha256: None,
            network: self.network,
            class_names: self.data.class_names,
            classes: self.data.classes,
            head,
            precision: self.compute.precision(),
            mean: mean.clone(),
        };
        match (&self.training, &model) {
            (Training::Sharded(learner), _) => learner.write_model(&self.run, &description)?,
            (_, Some(model)) => model_file::write(&self.run, model, &description)?,
            (_, None) => unreachable!("a model that is not divided is whole"),
        }
        if let Some((_, details)) = &test {
            self.run.write_compact_json(TEST, details)?;
        }
        let summary = RunSummary {
            recipe: name,
            data,
            head,
            seed,
            steps: self.step,
            batch,
            validation,
            test: test.map(|(evaluation, _)| evaluation),
            seconds: self.seconds,
            rollbacks: self.rollbacks.len(),
            kept: Some(kept),
            extended_from: self.extended_from,
            environment: Environment::current(&self.compute),
        };
        // A killed run may have left additional checkpoints.
        prune(&self.run, self.step)?;
        self.run.write_json(SUMMARY, &summary)?;
        Ok(RunOutcome::Done(Box::new(summary)))
    }
}

/// The moving average at the start of a run, if the recipe asks for one.
fn first_average(recipe: &Recipe, training: &Training) -> Option<MovingAverage> {
    let (decay, model) = recipe.average.zip(training.whole())?;
    Some(MovingAverage::new(decay, model))
}

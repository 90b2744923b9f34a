//! The loop.

use std::sync::atomic::Ordering;
use std::time::Instant;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Device, Int, Tensor, TensorData};
use lsoftmax::HingeLossConfig;
use lsoftmax_nn::NetworkConfig;
use serde::{Deserialize, Serialize};

use super::divergence::{Divergence, Settings, check_evaluation, check_norm};
use super::material::Material;
use super::rate::{Rate, RateState};
use super::start::newest;
use super::window::{Seen, Window};
use super::{Ended, Event, Options, Summary, TrainError};
use crate::data::Batch;
use crate::evaluate::{Evaluation, evaluate, tensor};
use crate::model::{Classifier, ModelError};
use crate::recipe::{Loss, OnDivergence, Recipe};
use crate::run::{Checkpoint, Environment, Metric, Metrics, RunDirectory, TensorBoard, prune};
use crate::saved::{self, Description};

/// What a checkpoint holds besides model and optimiser.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The network and the classes that the model is for.
    network: NetworkConfig,
    classes: usize,
    /// The images that it is trained on.
    data: String,
    /// The recipe that it is trained by.
    recipe: String,
    rate: RateState,
    /// Returns to earlier checkpoints, as the log has them.
    returns: Vec<Metric>,
    /// Bytes of the log.
    log: u64,
    /// What the next line of the log will be made of.
    window: Window,
    seconds: f64,
}

/// Returns to earlier checkpoints, at most.
const MOST_RETURNS: usize = 5;

pub(super) struct Trainer<'a> {
    recipe: Recipe,
    run: RunDirectory,
    material: Material,
    options: &'a Options,
    device: Device,
    model: Classifier,
    optimiser: ModuleOptimizer,
    metrics: Metrics,
    tensorboard: Option<TensorBoard>,
    step: u64,
    state: State,
}

impl<'a> Trainer<'a> {
    /// At a checkpoint, or at the beginning.
    pub fn new(
        recipe: Recipe,
        run: RunDirectory,
        material: Material,
        options: &'a Options,
        checkpoint: Option<Checkpoint<State>>,
    ) -> Result<Self, TrainError> {
        let device = Device::flex().autodiff();
        let metrics = Metrics::open(&run.file("metrics.jsonl"))?;
        let model = fresh(&recipe, &material, &device)?;
        let state = State {
            network: material.network.clone(),
            classes: material.classes,
            data: material.digest.clone(),
            recipe: recipe.to_toml(),
            rate: RateState::default(),
            returns: Vec::new(),
            log: 0,
            window: Window::default(),
            seconds: 0.0,
        };
        let optimiser = recipe.sgd.init();
        let mut trainer = Self {
            recipe,
            run,
            material,
            options,
            device,
            model,
            optimiser,
            metrics,
            tensorboard: None,
            step: 0,
            state,
        };
        match checkpoint {
            Some(checkpoint) => trainer.load(checkpoint)?,
            None => trainer.metrics.cut(0)?,
        }
        Ok(trainer)
    }

    /// Puts everything back to where a checkpoint was taken.
    fn load(&mut self, checkpoint: Checkpoint<State>) -> Result<(), TrainError> {
        let Checkpoint { step, state, model, optimiser } = checkpoint;
        let run = self.run.path().display();
        let (network, classes) = (&self.material.network, self.material.classes);
        if (&state.network, state.classes) != (network, classes) {
            return Err(TrainError::Resume(format!(
                "the checkpoint of step {step} in {run} is of another network than the recipe beside it: put back the recipe that the run began with"
            )));
        }
        if state.data != self.material.digest {
            return Err(TrainError::Resume(format!(
                "the images of {} are not those that the run in {run} began with: put those back, or begin again with another --out",
                self.recipe.data
            )));
        }
        if state.recipe != self.recipe.to_toml() {
            return Err(TrainError::Resume(format!(
                "the recipe in {run} is not the one that the run began with: put that back, or begin again with another --out"
            )));
        }
        let other = |error: String| {
            TrainError::Resume(format!(
                "the checkpoint of step {step} in {run} was written by another version of the program ({error}): use that one, or begin again"
            ))
        };
        let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(model));
        let record = record.map_err(|error| other(error.to_string()))?;
        let model = fresh(&self.recipe, &self.material, &self.device)?;
        self.model = model.try_load_record(record).map_err(|error| other(error.to_string()))?;
        let optimiser = self.recipe.sgd.init().from_bytes(Bytes::from_bytes_vec(optimiser));
        self.optimiser = optimiser.map_err(|error| other(error.to_string()))?;
        self.metrics.cut(state.log)?;
        (self.step, self.state) = (step, state);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), TrainError> {
        self.state.log = self.metrics.synced()?;
        let failed =
            |error: String| TrainError::Resume(format!("no checkpoint could be made: {error}"));
        let model = self.model.clone().into_record().into_bytes();
        let model = model.map_err(|error| failed(error.to_string()))?.to_vec();
        let optimiser = self.optimiser.into_bytes();
        let optimiser = optimiser.map_err(|error| failed(error.to_string()))?.to_vec();
        let state = self.state.clone();
        Checkpoint { step: self.step, state, model, optimiser }.write(&self.run)?;
        Ok(())
    }

    /// Trains to the end, or until it is told to stop.
    pub fn run(
        mut self,
        notes: Vec<String>,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<Ended, TrainError> {
        let (step, steps) = (self.step, self.recipe.steps);
        let events = self.run.file("tensorboard");
        if self.options.tensorboard || events.is_dir() {
            self.tensorboard = Some(TensorBoard::open(&events, step)?);
        }
        observe(Event::Began { step, steps, recipe: &self.recipe, notes: &notes });
        loop {
            match self.train(observe) {
                Ok(true) => return self.finish(),
                Ok(false) => return Ok(Ended::Interrupted { step: self.step }),
                Err(TrainError::Divergence(reason)) => self.roll_back(reason, observe)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the steps. False if it was told to stop.
    fn train(&mut self, observe: &mut dyn FnMut(Event<'_>)) -> Result<bool, TrainError> {
        let steps = self.recipe.steps;
        let mut batches = self.material.loader.ahead(self.step..steps, self.options.loader_threads);
        let mut since = (Instant::now(), self.step);
        let begun = (Instant::now(), self.state.seconds);
        while self.step < steps && !self.rate().is_done() {
            if self.options.stop.load(Ordering::Relaxed) {
                self.checkpoint()?;
                observe(Event::Kept { step: self.step });
                return Ok(false);
            }
            let batch = batches.next().expect("there is a batch for every step");
            let (lambda, rate) = (self.lambda(), self.rate().at(self.step));
            let settings = Settings { rate, lambda: self.recipe.has_margin().then_some(lambda) };
            let seen = self.take_step(batch, lambda, settings)?;
            self.step += 1;
            self.state.seconds = begun.1 + begun.0.elapsed().as_secs_f64();
            self.state.window.add(&seen);
            observe(Event::Stepped { step: self.step });
            check_norm(self.step, seen.feature_norm, settings)?;
            let due = |every: u64| self.step.is_multiple_of(every) || self.step == steps;
            let (log, evaluate, keep) = (
                due(self.recipe.log_every),
                due(self.recipe.evaluate_every),
                due(self.recipe.checkpoint_every),
            );
            if log {
                let images = (self.step - since.1) * self.recipe.batch as u64;
                let speed = images as f64 / since.0.elapsed().as_secs_f64();
                let metric = self.state.window.metric(self.step, lambda, rate, speed);
                self.state.window = Window::default();
                self.log(&metric, observe)?;
            }
            let mut goes_on = true;
            if evaluate && let Some(found) = self.validate()? {
                check_evaluation((self.step, steps), &found, self.material.classes, settings)?;
                let metric =
                    Metric::Validation { step: self.step, loss: found.loss, error: found.error };
                self.log(&metric, observe)?;
                let mut schedule = self.rate();
                schedule.evaluated(found.loss);
                goes_on = !schedule.is_done();
                self.state.rate = schedule.state;
            }
            if keep || !goes_on {
                self.check_weights(settings)?;
                self.checkpoint()?;
                observe(Event::Kept { step: self.step });
            }
            if log || evaluate {
                since = (Instant::now(), self.step);
            }
        }
        Ok(true)
    }

    /// Adds a line to the log.
    fn log(
        &mut self,
        metric: &Metric,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        self.metrics.add(metric)?;
        if let Some(events) = &mut self.tensorboard {
            events.add(metric)?;
        }
        observe(Event::Logged(metric));
        Ok(())
    }

    fn rate(&self) -> Rate<'_> {
        Rate::new(&self.recipe.learning_rate, self.state.rate)
    }

    /// λ of the next step, which does not fall below what the last return set.
    fn lambda(&self) -> f64 {
        let floor = match self.state.returns.last() {
            Some(Metric::Rollback { lambda_floor, .. }) => *lambda_floor,
            _ => 0.0,
        };
        self.recipe.lambda.at(self.step).max(floor)
    }

    fn take_step(
        &mut self,
        batch: Batch,
        lambda: f64,
        settings: Settings,
    ) -> Result<Seen, TrainError> {
        let labels: Vec<i64> = batch.labels.iter().map(|label| i64::from(*label)).collect();
        let count = labels.len();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [count]), &self.device);
        let images = tensor(batch, &self.device);
        let step = self.step + 1;
        let not_finite = |what: String| Divergence::NotFinite { step, what, settings };
        let (loss, seen) = match self.loss(images, labels, lambda) {
            Err(ModelError::Head(error)) if error.is_not_finite() => {
                return Err(not_finite(error.to_string()).into());
            }
            other => other?,
        };
        if !seen.loss.is_finite() {
            return Err(not_finite("the loss is not finite".into()).into());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optimiser.step(settings.rate, self.model.clone(), gradients);
        Ok(seen)
    }

    fn loss(
        &self,
        images: Tensor<4>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<(Tensor<1>, Seen), ModelError> {
        match self.recipe.loss {
            Loss::LSoftmax => {
                let output = self.model.loss(images, labels, lambda)?;
                let report = output.report()?;
                let seen = Seen {
                    loss: report.loss,
                    accuracy: report.accuracy,
                    angle: report.theta.mean,
                    feature_norm: report.feature_norm.mean,
                };
                Ok((output.loss, seen))
            }
            Loss::Hinge => {
                let features = self.model.network.forward(images)?;
                // The head's report gives what the hinge loss does not: angles and accuracy.
                let head = self.model.head.clone().valid();
                let report = head.forward(features.clone().inner(), labels.clone().inner(), 0.0)?;
                let report = report.report()?;
                let scores = self.model.head.logits(features);
                let hinge = HingeLossConfig::new().init();
                let loss = hinge.forward(scores, labels);
                let seen = Seen {
                    loss: loss.clone().into_scalar::<f32>().into(),
                    accuracy: report.accuracy,
                    angle: report.theta.mean,
                    feature_norm: report.feature_norm.mean,
                };
                Ok((loss, seen))
            }
        }
    }

    /// Whether the last step, whose result no loss has seen, is one to go on from.
    fn check_weights(&self, settings: Settings) -> Result<(), Divergence> {
        if self.model.is_finite() {
            return Ok(());
        }
        let what = "a weight is not finite".into();
        Err(Divergence::NotFinite { step: self.step, what, settings })
    }

    fn validate(&self) -> Result<Option<Evaluation>, TrainError> {
        let Some(images) = &self.material.validation else { return Ok(None) };
        let mean = self.material.loader.mean();
        Ok(Some(evaluate(&self.model.clone().valid(), images, mean)?))
    }

    /// Goes back, and on with a larger λ: to the last checkpoint, or to one before where it went back
    /// to the last time if that was of no use; to the beginning if there is none, or if nothing was
    /// learnt since.
    fn roll_back(
        &mut self,
        reason: Divergence,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let lambda = self.lambda();
        let chosen = self.options.on_divergence.unwrap_or(self.recipe.on_divergence);
        if chosen == OnDivergence::Stop || !self.recipe.has_margin() {
            return Err(reason.into());
        }
        let mut returns = self.state.returns.clone();
        if returns.len() == MOST_RETURNS {
            let (step, rate) = (self.step, self.rate().at(self.step));
            return Err(TrainError::Hopeless { step, returns: returns.len(), lambda, rate });
        }
        let from = self.step;
        match self.checkpoint_before(&reason)? {
            Some(checkpoint) => self.load(checkpoint)?,
            None => {
                self.model = fresh(&self.recipe, &self.material, &self.device)?;
                self.optimiser = self.recipe.sgd.init();
                self.metrics.cut(0)?;
                self.step = 0;
                self.state.rate = RateState::default();
                self.state.returns.clear();
                self.state.window = Window::default();
            }
        }
        // The log was cut back, and with it what it had of the returns since.
        for earlier in &returns[self.state.returns.len()..] {
            self.metrics.add(earlier)?;
        }
        returns.push(Metric::Rollback {
            step: from,
            to: self.step,
            lambda_floor: (4.0 * lambda).max(1.0),
            reason: reason.to_string(),
        });
        self.log(&returns[returns.len() - 1], observe)?;
        self.state.returns = returns;
        // So that a run resumed from here knows of it.
        self.checkpoint()
    }

    fn checkpoint_before(
        &self,
        reason: &Divergence,
    ) -> Result<Option<Checkpoint<State>>, TrainError> {
        if let Divergence::Chance { .. } = reason {
            return Ok(None);
        }
        let before = match self.state.returns.last() {
            // It got no further than the last time.
            Some(Metric::Rollback { step, to, .. }) if self.step <= *step => Some(*to),
            _ => None,
        };
        Ok(newest(&self.run, before)?.0)
    }

    /// The last evaluations, the model and the summary.
    fn finish(self) -> Result<Ended, TrainError> {
        let validation = self.validate()?;
        let model = self.model.clone().valid();
        let mean = self.material.loader.mean();
        let test = match &self.material.test {
            Some(images) => Some(evaluate(&model, images, mean)?),
            None => None,
        };
        let Recipe { name, data, margin, precision, seed, batch, .. } = &self.recipe;
        let description = Description {
            version: saved::VERSION,
            recipe: name.clone(),
            data: data.clone(),
            seed: *seed,
            digest: self.material.digest.clone(),
            network: self.material.network.clone(),
            class_names: self.material.class_names.clone(),
            classes: self.material.classes,
            margin: *margin,
            precision: *precision,
            mean: mean.clone(),
        };
        saved::write(&self.run, &model, &description)?;
        let summary = Summary {
            recipe: name.clone(),
            data: data.clone(),
            margin: *margin,
            seed: *seed,
            steps: self.step,
            batch: *batch,
            validation,
            test,
            seconds: self.state.seconds,
            rollbacks: self.state.returns.len(),
            environment: Environment::here(*precision),
        };
        // A kill may have left more than there should be.
        prune(&self.run, self.step)?;
        self.run.write_json("summary.json", &summary)?;
        Ok(Ended::Done(Box::new(summary)))
    }
}

/// A model as a run begins with it.
fn fresh(recipe: &Recipe, material: &Material, device: &Device) -> Result<Classifier, TrainError> {
    device.seed(recipe.seed);
    let Material { network, classes, .. } = material;
    let model = Classifier::new(network, *classes, recipe.margin, recipe.precision, device);
    Ok(model.map_err(ModelError::from)?)
}

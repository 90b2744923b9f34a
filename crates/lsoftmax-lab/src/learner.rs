//! The training step, shared by training runs, benchmarks and tests.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bytes, Tensor};

use crate::batch::LabelledImages;
use crate::model::{Classifier, ModelError};
use crate::objective::{BatchMetrics, Objective};
use crate::optimiser::Optimiser;

/// A model in training, with its optimiser and loss.
pub struct Learner {
    /// `None` only inside [`Learner::update`], where the optimiser owns the model.
    model: Option<Classifier>,
    optimiser: ModuleOptimizer,
    objective: Objective,
    clip_norm: Option<f64>,
}

/// Why a step failed. Parameters are unchanged, but batch norm has already counted the batches.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A feature, a weight or the loss is not finite.
    #[error("{0}")]
    NotFinite(String),
    /// The model rejected the batch.
    #[error(transparent)]
    Model(ModelError),
}

impl From<ModelError> for StepError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Head(error) if error.is_not_finite() => Self::NotFinite(error.to_string()),
            error => Self::Model(error),
        }
    }
}

/// The hyperparameters of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// λ, ignored by objectives without a margin.
    pub lambda: f64,
    /// The learning rate.
    pub rate: f64,
}

impl Learner {
    /// A model, on a device with autodiff, and a fresh optimiser.
    pub fn new(model: Classifier, optimiser: &Optimiser, objective: Objective) -> Self {
        Self { model: Some(model), optimiser: optimiser.init(1.0), objective, clip_norm: None }
    }

    /// Clips the global norm of the gradients of a step to this value.
    pub fn with_clip_norm(mut self, clip_norm: Option<f64>) -> Self {
        self.clip_norm = clip_norm;
        self
    }

    /// Starts over with an optimiser that multiplies the learning rate of the network by `factor`.
    pub fn with_trunk_rate(mut self, optimiser: &Optimiser, factor: f64) -> Self {
        self.optimiser = optimiser.init(factor);
        self
    }

    /// The model.
    pub fn model(&self) -> &Classifier {
        self.model.as_ref().expect("only an update takes the model, and puts it back")
    }

    /// Takes one optimiser step on the mean loss of `batches`, which must have the same size. Returns the
    /// mean of their metrics before the step.
    ///
    /// # Errors
    /// When a batch does not fit the model, or a number is not finite.
    pub fn step(
        &mut self,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        settings: StepSettings,
    ) -> Result<BatchMetrics, StepError> {
        self.step_with(batches, settings, |_, _| Ok(()))
    }

    /// Like [`Learner::step`], but calls `inspect` with the gradients, which it may change, before they are
    /// clipped and applied.
    ///
    /// # Errors
    /// See [`Learner::step`].
    pub fn step_with(
        &mut self,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        settings: StepSettings,
        inspect: impl FnOnce(&Classifier, &mut GradientsParams) -> Result<(), StepError>,
    ) -> Result<BatchMetrics, StepError> {
        let (mut gradients, metrics) = self.gradients(batches, settings.lambda)?;
        inspect(self.model(), &mut gradients)?;
        if let Some(max_norm) = self.clip_norm {
            clip(self.model(), &mut gradients, max_norm);
        }
        self.update(settings.rate, gradients);
        Ok(metrics)
    }

    /// The gradients of the mean loss of batches of the same size, and the mean of their metrics.
    fn gradients(
        &self,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        lambda: f64,
    ) -> Result<(GradientsParams, BatchMetrics), StepError> {
        let share = 1.0 / batches.len() as f64;
        let model = self.model();
        let mut accumulator = GradientsAccumulator::new();
        let mut metrics = BatchMetrics::default();
        for batch in batches {
            let (loss, of_batch) = self.objective.loss(model, batch, lambda)?;
            if !of_batch.loss.is_finite() {
                return Err(StepError::NotFinite("the loss is not finite".into()));
            }
            metrics = metrics.plus(of_batch, share);
            let loss = if share == 1.0 { loss } else { loss.mul_scalar(share) };
            accumulator.accumulate(model, GradientsParams::from_grads(loss.backward(), model));
        }
        Ok((accumulator.grads(), metrics))
    }

    /// Applies the gradients. The optimiser takes ownership of the model to update it in place.
    fn update(&mut self, rate: f64, gradients: GradientsParams) {
        let model = self.model.take().expect("only an update takes the model, and puts it back");
        self.model = Some(self.optimiser.step(rate, model, gradients));
    }

    /// The optimiser's record, for a checkpoint.
    ///
    /// # Errors
    /// When Burn cannot write it.
    pub(crate) fn optimiser_record(&self) -> Result<Vec<u8>, String> {
        let bytes = self.optimiser.into_bytes().map_err(|error| error.to_string())?;
        Ok(bytes.to_vec())
    }

    /// Continues from an optimiser's record.
    ///
    /// # Errors
    /// When Burn cannot read it.
    pub(crate) fn with_optimiser_record(mut self, record: Vec<u8>) -> Result<Self, String> {
        let optimiser = self.optimiser.from_bytes(Bytes::from_bytes_vec(record));
        self.optimiser = optimiser.map_err(|error| error.to_string())?;
        Ok(self)
    }
}

/// The global norm of the gradients of a model.
pub fn gradient_norm(model: &Classifier, gradients: &GradientsParams) -> f64 {
    struct SquaredNorm<'a>(&'a GradientsParams, f64);
    impl ModuleVisitor for SquaredNorm<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                let square = |value: f32| f64::from(value) * f64::from(value);
                self.1 += gradient.into_data().iter::<f32>().map(square).sum::<f64>();
            }
        }
    }
    let mut norm = SquaredNorm(gradients, 0.0);
    model.visit(&mut norm);
    norm.1.sqrt()
}

/// Scales the gradients so that their global norm is at most `max_norm`.
fn clip(model: &Classifier, gradients: &mut GradientsParams, max_norm: f64) {
    struct ScaleGradients<'a>(&'a mut GradientsParams, f64);
    impl ModuleVisitor for ScaleGradients<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.remove::<D>(param.id) {
                self.0.register(param.id, gradient.mul_scalar(self.1));
            }
        }
    }
    let norm = gradient_norm(model, gradients);
    if norm > max_norm {
        model.visit(&mut ScaleGradients(gradients, max_norm / norm));
    }
}

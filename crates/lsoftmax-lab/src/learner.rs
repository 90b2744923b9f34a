//! The training step, shared by training runs, benchmarks and tests.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bytes, Tensor, TensorData};
use lsoftmax::{MarginHead, RowSgd, SampleRate, SampledHead};

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
    /// If a step uses only a share of the classes.
    sampling: Option<Sampling>,
}

/// How the weights of sampled classes are drawn and updated.
struct Sampling {
    seed: u64,
    optimiser: RowSgd,
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
    /// The number of steps before this one, by which sampled classes are drawn.
    pub step: u64,
}

impl Learner {
    /// A model, on a device with autodiff, and a fresh optimiser.
    ///
    /// # Panics
    /// When the head samples classes and the optimiser is not SGD with plain momentum.
    pub fn new(model: Classifier, optimiser: &Optimiser, objective: Objective) -> Self {
        let sampling = (model.head.sample_rate != SampleRate::ALL).then(|| Sampling {
            seed: 0,
            optimiser: optimiser.init_rows().expect("sampled classes need SGD with plain momentum"),
        });
        let (model, optimiser) = (Some(model), optimiser.init(1.0));
        Self { model, optimiser, objective, clip_norm: None, sampling }
    }

    /// Sets the seed by which classes are drawn, if the head samples them; 0 by default.
    pub fn with_seed(mut self, seed: u64) -> Self {
        if let Some(sampling) = &mut self.sampling {
            sampling.seed = seed;
        }
        self
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
        let (gradients, metrics) = match self.sampling.take() {
            None => self.prepared_gradients(self.model(), batches, settings.lambda, inspect)?,
            Some(mut sampling) => {
                let found = self.sampled_step(&mut sampling, batches, settings, inspect);
                self.sampling = Some(sampling);
                found?
            }
        };
        self.update(settings.rate, gradients);
        Ok(metrics)
    }

    /// Takes a step on the weights of sampled classes; returns the other gradients and the metrics.
    fn sampled_step(
        &mut self,
        sampling: &mut Sampling,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        settings: StepSettings,
        inspect: impl FnOnce(&Classifier, &mut GradientsParams) -> Result<(), StepError>,
    ) -> Result<(GradientsParams, BatchMetrics), StepError> {
        let StepSettings { lambda, rate, step } = settings;
        let mut batches: Vec<LabelledImages> = batches.collect();
        let labels = batches.iter().map(|batch| batch.labels.clone()).collect();
        let model = self.model();
        let sampled = model.head.sampled(Tensor::cat(labels, 0), sampling.seed, step);
        let SampledHead { head, classes, labels } = sampled.map_err(ModelError::from)?;
        let mut start = 0;
        for batch in &mut batches {
            let end = start + batch.labels.dims()[0];
            batch.labels = labels.clone().slice(start..end);
            start = end;
        }
        let part = Classifier { network: model.network.clone(), head };
        let (mut gradients, metrics) =
            self.prepared_gradients(&part, batches.into_iter(), lambda, inspect)?;
        if let Some(gradient) = gradients.remove::<2>(part.head.weight.id) {
            // Owned, so that the rows are updated in place.
            let Classifier { network, head } = self.take_model();
            let weight = sampling.optimiser.step(rate, head.weight, classes, gradient);
            self.model = Some(Classifier { network, head: MarginHead { weight, ..head } });
        }
        Ok((gradients, metrics))
    }

    /// The gradients of a model, inspected and clipped, and the metrics.
    fn prepared_gradients(
        &self,
        model: &Classifier,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        lambda: f64,
        inspect: impl FnOnce(&Classifier, &mut GradientsParams) -> Result<(), StepError>,
    ) -> Result<(GradientsParams, BatchMetrics), StepError> {
        let (mut gradients, metrics) = self.gradients(model, batches, lambda)?;
        inspect(model, &mut gradients)?;
        if let Some(max_norm) = self.clip_norm {
            clip(model, &mut gradients, max_norm);
        }
        Ok((gradients, metrics))
    }

    /// The gradients of the mean loss of batches of the same size, and the mean of their metrics.
    fn gradients(
        &self,
        model: &Classifier,
        batches: impl ExactSizeIterator<Item = LabelledImages>,
        lambda: f64,
    ) -> Result<(GradientsParams, BatchMetrics), StepError> {
        let share = 1.0 / batches.len() as f64;
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
        let model = self.take_model();
        self.model = Some(self.optimiser.step(rate, model, gradients));
    }

    fn take_model(&mut self) -> Classifier {
        self.model.take().expect("only an update takes the model, and puts it back")
    }

    /// The optimiser's record, for a checkpoint.
    ///
    /// # Errors
    /// When Burn cannot write it.
    pub(crate) fn optimiser_record(&self) -> Result<Vec<u8>, String> {
        let bytes = self.optimiser.into_bytes().map_err(|error| error.to_string())?;
        let Some(Sampling { optimiser, .. }) = &self.sampling else { return Ok(bytes.to_vec()) };
        // The length of Burn's record, the record, and the velocity of the sampled weights.
        let mut record = (bytes.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(&bytes);
        if let Some(velocity) = optimiser.velocity() {
            record.extend(velocity.to_data().iter::<f32>().flat_map(f32::to_le_bytes));
        }
        Ok(record)
    }

    /// Continues from an optimiser's record.
    ///
    /// # Errors
    /// When Burn cannot read it.
    pub(crate) fn with_optimiser_record(mut self, record: Vec<u8>) -> Result<Self, String> {
        let mut record = record;
        if let Some(Sampling { seed, optimiser }) = self.sampling.take() {
            let weight = self.model().head.weight.val();
            let (burn, velocity) = divided(&record, &weight)?;
            let optimiser = optimiser.with_velocity(velocity);
            self.sampling = Some(Sampling { seed, optimiser });
            record = burn;
        }
        let optimiser = self.optimiser.from_bytes(Bytes::from_bytes_vec(record));
        self.optimiser = optimiser.map_err(|error| error.to_string())?;
        Ok(self)
    }
}

/// Burn's record and the velocity of sampled weights, as [`Learner::optimiser_record`] joins them.
fn divided(record: &[u8], weight: &Tensor<2>) -> Result<(Vec<u8>, Option<Tensor<2>>), String> {
    let (length, rest) = record.split_first_chunk().ok_or("the optimiser's record is too short")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (burn, velocity) =
        rest.split_at_checked(length).ok_or("the optimiser's record is too short")?;
    if velocity.is_empty() {
        return Ok((burn.to_vec(), None));
    }
    let (numbers, _) = velocity.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let shape = weight.dims();
    if numbers.len() != shape[0] * shape[1] {
        return Err("the momentum of the head has another size than its weights".into());
    }
    let velocity = Tensor::from_data(TensorData::new(numbers, shape), &weight.device());
    Ok((burn.to_vec(), Some(velocity)))
}

/// The global norm of the gradients of a model.
pub fn gradient_norm(model: &Classifier, gradients: &GradientsParams) -> f64 {
    squared_norm(model, gradients).sqrt()
}

/// The sum of the squares of the gradients of a module.
pub(crate) fn squared_norm<M: Module>(module: &M, gradients: &GradientsParams) -> f64 {
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
    module.visit(&mut norm);
    norm.1
}

/// Scales the gradients so that their global norm is at most `max_norm`.
fn clip(model: &Classifier, gradients: &mut GradientsParams, max_norm: f64) {
    let norm = gradient_norm(model, gradients);
    if norm > max_norm {
        scale_gradients(model, gradients, max_norm / norm);
    }
}

/// Multiplies the gradients of a module.
pub(crate) fn scale_gradients<M: Module>(module: &M, gradients: &mut GradientsParams, factor: f64) {
    struct ScaleGradients<'a>(&'a mut GradientsParams, f64);
    impl ModuleVisitor for ScaleGradients<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.remove::<D>(param.id) {
                self.0.register(param.id, gradient.mul_scalar(self.1));
            }
        }
    }
    module.visit(&mut ScaleGradients(gradients, factor));
}

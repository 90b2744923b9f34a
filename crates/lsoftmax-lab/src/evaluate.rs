//! How well a model classifies images.

use std::ops::ControlFlow;
use std::sync::Arc;

use burn::tensor::Tensor;
use lsoftmax_comm::Communicator;
use lsoftmax_data::{Batch, Images, Loader, LoaderError, Mean, Sampling};
use serde::{Deserialize, Serialize};

use crate::batch;
use crate::model::{Classifier, ModelError};

/// The number of images per forward pass.
const BATCH: usize = 256;

/// How well a model classifies images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The number of images.
    pub images: usize,
    /// The number of images classified incorrectly.
    pub wrong: usize,
    /// The error rate in percent.
    pub error: f64,
    /// The mean cross-entropy, without the margin.
    pub loss: f64,
    /// The mean angle between a feature and its class, in degrees.
    pub angle: f64,
}

/// Why a model could not be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The images do not fit the model.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The model rejected them.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The watcher stopped the evaluation.
    #[error("the evaluation was interrupted")]
    Interrupted,
}

/// Is told the number of images done before every batch, and may stop the evaluation.
pub type WatchImages<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// The output of a model for one image.
#[derive(Clone, Debug)]
pub struct ImageOutput {
    /// The features.
    pub features: Vec<f32>,
    /// W·x (+ b) of what the head normalises, one per class.
    pub logits: Vec<f32>,
    /// The label that came with the image.
    pub label: u32,
}

/// Evaluates a model (on a device without autodiff) on all images.
///
/// # Errors
/// When the images do not fit the model.
pub fn evaluate(
    model: &Classifier,
    images: &Arc<Images>,
    mean: &Mean,
) -> Result<Evaluation, EvaluateError> {
    evaluate_watched(model, images, mean, &mut |_| ControlFlow::Continue(()))
}

/// As [`evaluate`], with a watcher.
///
/// # Errors
/// When the images do not fit the model, or `watch` stops the evaluation.
pub fn evaluate_watched(
    model: &Classifier,
    images: &Arc<Images>,
    mean: &Mean,
    watch: &mut WatchImages<'_>,
) -> Result<Evaluation, EvaluateError> {
    let (lengths, mut sums) = (LogitLengths::of(model), EvaluationSums::default());
    let add = |output: &ImageOutput| sums.add(lengths.classified(output));
    for_each_image_watched(model, images, mean, add, watch)?;
    Ok(sums.evaluation())
}

/// How an image is classified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Classified {
    /// Whether its class has the largest logit, the first of several.
    pub correct: bool,
    /// The cross-entropy, without the margin.
    pub loss: f64,
    /// The angle between its features and its class, in degrees.
    pub degrees: f64,
}

/// The sums of an [`Evaluation`] over the images of a pass.
#[derive(Debug, Default)]
pub(crate) struct EvaluationSums {
    images: usize,
    wrong: usize,
    loss: f64,
    angle: f64,
}

impl EvaluationSums {
    /// Adds an image.
    pub fn add(&mut self, Classified { correct, loss, degrees }: Classified) {
        self.images += 1;
        self.wrong += usize::from(!correct);
        self.loss += loss;
        self.angle += degrees;
    }

    /// The evaluation of the images added.
    pub fn evaluation(&self) -> Evaluation {
        let count = self.images as f64;
        Evaluation {
            images: self.images,
            wrong: self.wrong,
            error: 100.0 * self.wrong as f64 / count,
            loss: self.loss / count,
            angle: self.angle / count,
        }
    }
}

/// Calls `visit` with the output of the model for every image, in order. The ranks of the model's network take
/// turns to compute batches; each visits all images.
///
/// # Errors
/// When the images do not fit the model.
pub fn for_each_image(
    model: &Classifier,
    images: &Arc<Images>,
    mean: &Mean,
    visit: impl FnMut(&ImageOutput),
) -> Result<(), EvaluateError> {
    for_each_image_watched(model, images, mean, visit, &mut |_| ControlFlow::Continue(()))
}

/// As [`for_each_image`], with a watcher.
///
/// # Errors
/// When the images do not fit the model, or `watch` stops the pass.
pub fn for_each_image_watched(
    model: &Classifier,
    images: &Arc<Images>,
    mean: &Mean,
    mut visit: impl FnMut(&ImageOutput),
    watch: &mut WatchImages<'_>,
) -> Result<(), EvaluateError> {
    let [classes, width] = model.head.weight.dims();
    let visit = |rows: &[f32], labels: &[u32]| {
        for (row, label) in rows.chunks_exact(width + classes).zip(labels) {
            let (features, logits) = row.split_at(width);
            visit(&ImageOutput { features: features.into(), logits: logits.into(), label: *label });
        }
        Ok(())
    };
    let outputs = |batch| outputs(model, batch);
    for_each_batch(model.network.ranks(), images, mean, width + classes, outputs, visit, watch)
}

/// Calls `visit` with the rows that `outputs` computes for a batch of images, one of `width` numbers per image, and
/// the labels, for every batch in order. The ranks take turns to compute batches; each visits all.
pub(crate) fn for_each_batch(
    ranks: &Arc<dyn Communicator>,
    images: &Arc<Images>,
    mean: &Mean,
    width: usize,
    outputs: impl Fn(Batch) -> Result<Vec<f32>, EvaluateError>,
    mut visit: impl FnMut(&[f32], &[u32]) -> Result<(), EvaluateError>,
    watch: &mut WatchImages<'_>,
) -> Result<(), EvaluateError> {
    let loader = Loader::new(Arc::clone(images), mean.clone(), Sampling::evaluation(BATCH))?;
    let numbers: Vec<u64> = (0..loader.batches_per_epoch()).collect();
    let mut labels = images.labels().chunks(BATCH);
    for (round, numbers) in numbers.chunks(ranks.size()).enumerate() {
        let done = round * ranks.size() * BATCH;
        if ranks.any(watch(done).is_break()) {
            return Err(EvaluateError::Interrupted);
        }
        let mine = match numbers.get(ranks.rank()) {
            Some(number) => outputs(loader.batch(*number))?,
            None => Vec::new(),
        };
        let rows = match ranks.size() {
            1 => mine,
            _ => {
                let count = |number: usize| (images.len() - number * BATCH).min(BATCH);
                let number = |rank: usize| numbers.get(rank).map(|number| *number as usize);
                let length = |rank| number(rank).map_or(0, count) * width;
                ranks.gather_floats(&mine, &(0..ranks.size()).map(length).collect::<Vec<_>>())
            }
        };
        for (rows, labels) in rows.chunks(width * BATCH).zip(labels.by_ref()) {
            visit(rows, labels)?;
        }
    }
    Ok(())
}

/// Features and logits of every image of a batch.
fn outputs(model: &Classifier, batch: Batch) -> Result<Vec<f32>, EvaluateError> {
    let features = model.network.forward(batch::images(batch, &model.device()));
    let features = features.map_err(ModelError::from)?;
    let logits = model.head.logits(features.clone());
    Ok(Tensor::cat(vec![features, logits], 1).into_data().iter::<f32>().collect())
}

/// What a logit must be divided by to be a cosine.
pub struct LogitLengths {
    /// |W| of every class, or of W/|W| if the head normalises it.
    weights: Vec<f64>,
    /// The length of every feature, if the head normalises it.
    features: Option<f64>,
}

impl LogitLengths {
    /// Those of a model.
    pub fn of(model: &Classifier) -> Self {
        let head = &model.head;
        let width = head.weight.dims()[1];
        let weights: Vec<f32> = head.weight.val().into_data().iter::<f32>().collect();
        let normalised = head.normalisation.normalises_weights();
        let length = |weight: &[f32]| match norm(weight) {
            length if normalised && length > 0.0 => 1.0,
            length => length,
        };
        Self { weights: weights.chunks_exact(width).map(length).collect(), features: head.scale() }
    }

    /// How an image is classified.
    pub(crate) fn classified(&self, output: &ImageOutput) -> Classified {
        let ImageOutput { features, logits, label } = output;
        let label = *label as usize;
        let (largest, sum) = scaled_sum_exp(logits);
        Classified {
            correct: argmax(logits) == label,
            loss: largest + sum.ln() - f64::from(logits[label]),
            degrees: self.degrees(features, label, logits[label]),
        }
    }

    /// The angle in degrees between features and a class, from its logit.
    pub fn degrees(&self, features: &[f32], class: usize, logit: f32) -> f64 {
        let length = self.features.unwrap_or_else(|| norm(features));
        degrees(logit.into(), length * self.weights[class])
    }
}

/// The Euclidean norm of a vector.
pub fn norm(vector: &[f32]) -> f64 {
    vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// The angle in degrees between two vectors, from their dot product and the product of their norms;
/// 90° if that is zero.
pub fn degrees(product: f64, lengths: f64) -> f64 {
    let cosine = if lengths > 0.0 { (product / lengths).clamp(-1.0, 1.0) } else { 0.0 };
    cosine.acos().to_degrees()
}

/// The largest logit, and the sum of e^(logit − largest): a softmax probability without overflow.
pub(crate) fn scaled_sum_exp(logits: &[f32]) -> (f64, f64) {
    let largest = logits.iter().fold(f64::MIN, |most, logit| most.max(f64::from(*logit)));
    (largest, logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum())
}

/// The class with the largest logit, the first of several.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = class;
        }
    }
    best
}

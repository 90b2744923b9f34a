//! Statistics of a training step.

use burn::tensor::Tensor;
use lsoftmax_kernels::head::Geometry;
use serde::Serialize;

use crate::label::LabelTerm;
use crate::{AngularMargin, Margin};

/// Angles, norms and margins of a batch. Angles are in degrees.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report<M = Margin> {
    /// The number of samples.
    pub samples: usize,
    /// The mean loss.
    pub loss: f64,
    /// The fraction of samples whose label has the largest logit, without the margin.
    pub accuracy: f64,
    /// The fraction of samples whose label has the largest logit with the margin at the step's λ: that of
    /// the logits of the loss. Without a margin (m = 1) the same as `accuracy`.
    pub margin_accuracy: f64,
    /// The margin.
    pub margin: M,
    /// λ of the step.
    pub lambda: f64,
    /// θ, the angle between a sample and the weights of its class.
    pub theta: Angles,
    /// The number of samples in each interval of ψ: entry k counts θ in [kπ/m, (k+1)π/m].
    pub k: Vec<usize>,
    /// |x|.
    pub feature_norm: Norms,
    /// |W_j| over all classes.
    pub weight_norm: NormRange,
    /// The fraction of samples inside the margin: those whose label would not have the largest logit
    /// with the full margin (λ = 0), including misclassified samples.
    pub inside_margin: f64,
}

/// The mean and percentiles of angles, in degrees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Angles {
    pub mean: f64,
    pub p5: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p95: f64,
}

/// The range and mean of norms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Norms {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

/// The range of norms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct NormRange {
    pub min: f64,
    pub max: f64,
}

/// The inputs of a report for one sample.
pub(crate) struct LabelObservation {
    pub geometry: Geometry,
    /// The label's plain logit, with its bias, and the largest of the other classes.
    pub plain: f64,
    pub others_max: f64,
    pub correct: bool,
    pub loss: f64,
    /// The bias of the label.
    pub bias: f64,
}

impl<M: AngularMargin> Report<M> {
    pub(crate) fn new(
        margin: M,
        lambda: f64,
        observations: impl ExactSizeIterator<Item = LabelObservation>,
        weight_norm: (f64, f64),
    ) -> Self {
        let samples = observations.len();
        let n = samples as f64;
        let mut report = Self {
            samples,
            loss: 0.0,
            accuracy: 0.0,
            margin_accuracy: 0.0,
            k: vec![0; margin.intervals()],
            margin,
            lambda,
            theta: Angles::of(&mut []),
            feature_norm: Norms::of([].into_iter()),
            weight_norm: NormRange { min: weight_norm.0, max: weight_norm.1 },
            inside_margin: 0.0,
        };
        let mut theta = Vec::with_capacity(samples);
        let mut feature_norms = Vec::with_capacity(samples);
        for observation in observations {
            let LabelObservation { geometry, plain, others_max, correct, loss, bias } = observation;
            let term = LabelTerm::new(&report.margin, 0.0, &geometry);
            theta.push(term.cos.acos().to_degrees());
            report.loss += loss / n;
            report.accuracy += if correct { 1.0 } else { 0.0 };
            report.k[report.margin.interval(term.cos)] += 1;
            feature_norms.push(geometry.feature_norm);
            // Without a margin the plain logits decide, as for the accuracy.
            let identity = report.margin.is_identity();
            let own = if identity { plain } else { term.logit + bias };
            let wins = own > others_max;
            report.inside_margin += if wins { 0.0 } else { 1.0 };
            let blended = LabelTerm::new(&report.margin, lambda, &geometry).logit + bias;
            let wins = if identity { correct } else { blended > others_max };
            report.margin_accuracy += if wins { 1.0 } else { 0.0 };
        }
        report.accuracy /= n;
        report.margin_accuracy /= n;
        report.inside_margin /= n;
        report.theta = Angles::of(&mut theta);
        report.feature_norm = Norms::of(feature_norms.into_iter());
        report
    }
}

impl<M> Report<M> {
    /// The report with the norms of these features, those before they were normalised.
    pub(crate) fn with_features(self, features: &Tensor<2>) -> Self {
        let [_, width] = features.dims();
        let numbers: Vec<f64> = features.clone().into_data().iter::<f64>().collect();
        let norm = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
        let feature_norm = Norms::of(numbers.chunks_exact(width).map(norm));
        Self { feature_norm, ..self }
    }
}

impl Norms {
    /// Of at least one norm.
    pub(crate) fn of(norms: impl ExactSizeIterator<Item = f64>) -> Self {
        let count = norms.len() as f64;
        let mut range = Self { min: f64::INFINITY, mean: 0.0, max: 0.0 };
        for norm in norms {
            range.min = range.min.min(norm);
            range.max = range.max.max(norm);
            range.mean += norm / count;
        }
        range
    }
}

impl Angles {
    fn of(angles: &mut [f64]) -> Self {
        angles.sort_by(f64::total_cmp);
        let mean = angles.iter().sum::<f64>() / angles.len() as f64;
        // Percentiles with linear interpolation between samples.
        let at = |fraction: f64| {
            let Some(last) = angles.len().checked_sub(1) else { return f64::NAN };
            let position = fraction * last as f64;
            let (low, part) = (position.floor(), position.fract());
            let high = angles[(low as usize + 1).min(last)];
            angles[low as usize] * (1.0 - part) + high * part
        };
        Self { mean, p5: at(0.05), p25: at(0.25), p50: at(0.5), p75: at(0.75), p95: at(0.95) }
    }
}

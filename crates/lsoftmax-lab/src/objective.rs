//! The loss that a training step minimises.

use burn::module::Module;
use burn::tensor::Tensor;
use lsoftmax::{ContrastiveLossConfig, HingeLossConfig, Report};
use serde::{Deserialize, Serialize};

use crate::batch::LabelledImages;
use crate::head::HeadMargin;
use crate::model::{Classifier, ModelError};

/// The loss of a training run: the losses of the paper's tables.
///
/// In a recipe `loss = "head"`, which is the default, `loss = "hinge"` or
/// `loss = { contrastive = { weight = 0.1, margin = 1 } }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Objective {
    /// The head's own: large-margin softmax or one of its successors.
    #[default]
    #[serde(alias = "l-softmax")]
    Head,
    /// The hinge loss of the paper's tables, as in Caffe.
    Hinge,
    /// The head's loss plus `weight` times the contrastive loss of all pairs in the batch, on features
    /// normalised to length 1. With softmax as the head: the paper's softmax + contrastive.
    Contrastive {
        /// The weight of the contrastive loss.
        weight: f64,
        /// The distance beyond which pairs of different classes have no loss, below 2.
        margin: f64,
    },
}

/// Metrics of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchMetrics {
    /// The mean loss.
    pub loss: f64,
    /// The fraction of samples classified correctly, without the margin.
    pub accuracy: f64,
    /// The fraction of samples classified correctly with the margin at the step's λ; without a margin
    /// the same as `accuracy`.
    #[serde(default)]
    pub margin_accuracy: f64,
    /// The mean angle between samples and their classes, in degrees.
    pub angle: f64,
    /// The mean norm of the features.
    pub feature_norm: f64,
}

impl BatchMetrics {
    /// These metrics plus others times a factor.
    pub(crate) fn plus(self, other: Self, factor: f64) -> Self {
        Self {
            loss: self.loss + factor * other.loss,
            accuracy: self.accuracy + factor * other.accuracy,
            margin_accuracy: self.margin_accuracy + factor * other.margin_accuracy,
            angle: self.angle + factor * other.angle,
            feature_norm: self.feature_norm + factor * other.feature_norm,
        }
    }
}

impl From<Report<HeadMargin>> for BatchMetrics {
    fn from(report: Report<HeadMargin>) -> Self {
        Self {
            loss: report.loss,
            accuracy: report.accuracy,
            margin_accuracy: report.margin_accuracy,
            angle: report.theta.mean,
            feature_norm: report.feature_norm.mean,
        }
    }
}

impl Objective {
    /// Whether this is the head's own loss.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the loss depends on the head's margin and on λ.
    pub fn uses_margin(&self) -> bool {
        !matches!(self, Self::Hinge)
    }

    /// The differentiable loss of a batch, and its metrics.
    ///
    /// # Errors
    /// When images or labels do not fit the model, or a number is not finite.
    pub fn loss(
        &self,
        model: &Classifier,
        LabelledImages { images, labels }: LabelledImages,
        lambda: f64,
    ) -> Result<(Tensor<1>, BatchMetrics), ModelError> {
        let features = model.network.forward(images)?;
        match *self {
            Self::Head => {
                let output = model.head.forward(features, labels, lambda)?;
                Ok((output.loss.clone(), BatchMetrics::from(output.report()?)))
            }
            Self::Hinge => {
                // The hinge loss has no report: angles and accuracy come from the head.
                let head = model.head.clone().valid();
                let output = head.forward(features.clone().inner(), labels.clone().inner(), 0.0)?;
                let scores = model.head.logits(features);
                let loss = HingeLossConfig::new().init().forward(scores, labels);
                let report = BatchMetrics::from(output.report()?);
                let value = loss.clone().into_scalar::<f32>().into();
                Ok((loss, BatchMetrics { loss: value, margin_accuracy: report.accuracy, ..report }))
            }
            Self::Contrastive { weight, margin } => {
                let output = model.head.forward(features.clone(), labels.clone(), lambda)?;
                let contrastive = ContrastiveLossConfig::new().with_margin(margin).init();
                let pairs = contrastive.forward_batch(features, labels);
                let loss = output.loss.clone() + pairs.mul_scalar(weight);
                let value = loss.clone().into_scalar::<f32>().into();
                Ok((loss, BatchMetrics { loss: value, ..BatchMetrics::from(output.report()?) }))
            }
        }
    }
}

//! The losses of a batch from what the kernels found, and what the backward pass and a report need of them.

use lsoftmax_kernels::Buffer;
use lsoftmax_kernels::head::{Geometry, HeadSample, LabelGradient};

use crate::label::LabelTerm;
use crate::report::{LabelObservation, Report};
use crate::{AngularMargin, HeadError, Normalisation};

/// The losses of a batch, with the margin in the label's logits.
#[derive(Debug)]
pub(crate) struct BatchLoss {
    /// The bias of each sample's label.
    biases: Vec<f64>,
    normalisation: Normalisation,
    terms: Vec<LabelTerm>,
    /// The log-sum-exp over all classes.
    pub lse: Vec<f64>,
    pub losses: Buffer,
}

impl BatchLoss {
    /// From the samples of a forward pass and the biases of their labels. The other methods take the same samples.
    pub fn new(
        samples: &[HeadSample],
        biases: Vec<f64>,
        normalisation: Normalisation,
        margin: &impl AngularMargin,
        lambda: f64,
    ) -> Self {
        let count = samples.len();
        let (mut terms, mut lse) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut losses = Buffer::new(count);
        for ((sample, bias), out) in samples.iter().zip(&biases).zip(&mut *losses) {
            let geometry = normalisation.of_weights(sample.geometry);
            let term = LabelTerm::new(margin, lambda, &geometry);
            let logit =
                if margin.is_identity() { f64::from(sample.plain) } else { term.logit + bias };
            // ln(e^logit + e^others), and the same minus the logit, without overflow. The first is not
            // computed from the second, since adding a huge logit would lose it to rounding.
            let gap = sample.others_lse - logit;
            let tail = (-gap.abs()).exp().ln_1p();
            terms.push(term);
            lse.push(sample.others_lse.max(logit) + tail);
            *out = (gap.max(0.0) + tail) as f32;
        }
        Self { biases, normalisation, terms, lse, losses }
    }

    /// The first loss that is not finite.
    pub fn not_finite(&self, samples: &[HeadSample]) -> Option<HeadError> {
        let sample = self.losses.iter().position(|loss| !loss.is_finite())?;
        let Geometry { feature_norm, weight_norm, .. } = samples[sample].geometry;
        let value = self.losses[sample].into();
        Some(HeadError::Loss { sample, value, feature_norm, weight_norm })
    }

    /// The derivatives through the labels' logits, given ∂L/∂(loss of sample i).
    pub fn label_gradients(&self, samples: &[HeadSample], upstream: &[f32]) -> Vec<LabelGradient> {
        let gradient = |i: usize| {
            // p_y − 1 as minus the probability of the other classes, accurate for p_y near 1.
            let others = (samples[i].others_lse - self.lse[i]).exp();
            let gradient = self.terms[i].gradient(-f64::from(upstream[i]) * others);
            match self.normalisation.normalises_weights() {
                true => of_raw_weights(gradient, &samples[i].geometry),
                false => gradient,
            }
        };
        (0..samples.len()).map(gradient).collect()
    }

    /// The report, given the smallest and the largest |W|.
    pub fn report<M: AngularMargin>(
        &self,
        samples: &[HeadSample],
        margin: M,
        lambda: f64,
        weight_norms: (f32, f32),
    ) -> Report<M> {
        let observations = samples.iter().enumerate().map(|(i, sample)| LabelObservation {
            geometry: self.normalisation.of_weights(sample.geometry),
            plain: sample.plain.into(),
            others_max: sample.others_max.into(),
            correct: sample.correct,
            loss: self.losses[i].into(),
            bias: self.biases[i],
        });
        let (low, high) = weight_norms;
        Report::new(margin, lambda, observations, (low.into(), high.into()))
    }
}

/// The derivatives through W/|W| as the kernels take them: by W itself, before the projection.
fn of_raw_weights(gradient: LabelGradient, geometry: &Geometry) -> LabelGradient {
    let norm = geometry.weight_norm;
    let scale = if norm > 0.0 { norm.recip() } else { 0.0 };
    LabelGradient { across: gradient.across * scale, along_weight: 0.0, ..gradient }
}

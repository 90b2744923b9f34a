//! The loss composed of ordinary tensor operations, for every backend and float type.

use burn::tensor::activation::log_softmax;
use burn::tensor::module::linear;
use burn::tensor::{Bool, Int, Tensor};
use lsoftmax_kernels::head::{Geometry, ShapeError};

use crate::error::first_not_finite;
use crate::head::HeadTensors;
use crate::lambda::shares;
use crate::normalisation::{scaled_rows, unit_rows};
use crate::report::{LabelObservation, Report};
use crate::{AngularMargin, HeadError, Normalisation};

/// The state of a composed forward pass that a report needs, still on the device.
#[derive(Clone, Debug)]
pub(crate) struct ComposedPass {
    features: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    labels: Tensor<1, Int>,
    logits: Tensor<2>,
    normalisation: Normalisation,
}

/// The loss of every sample.
pub(crate) fn losses(
    tensors: HeadTensors,
    margin: &impl AngularMargin,
    lambda: f64,
) -> (Tensor<1>, ComposedPass) {
    let HeadTensors { features, weight: raw, bias, labels, normalisation, .. } = tensors;
    let [samples, _] = features.dims();
    let weight = match normalisation.normalises_weights() {
        true => unit_rows(raw.clone()),
        false => raw.clone(),
    };
    let logits = linear(features.clone(), weight.clone().transpose(), bias.clone());
    let index = labels.clone().reshape([samples, 1]);
    let pass = ComposedPass {
        features: features.clone().detach(),
        weight: raw.detach(),
        bias: bias.clone().map(Tensor::detach),
        labels: labels.clone(),
        logits: logits.clone().detach(),
        normalisation,
    };

    let logits = if margin.is_identity() {
        logits
    } else {
        let own = weight.select(0, labels.clone());
        let mut label = label_logit(features, own, margin, lambda);
        if let Some(bias) = bias {
            label = label + bias.select(0, labels).reshape([samples, 1]);
        }
        // Only the label's logit is replaced; the others stay bit-identical.
        let own = is_label(index.clone(), logits.dims());
        logits.clone().mask_where(own, label.expand(logits.dims()))
    };
    (log_softmax(logits, 1).gather(1, index).reshape([samples]).neg(), pass)
}

/// A mask of shape `[samples, classes]` that selects the label's logit of each sample.
fn is_label(index: Tensor<2, Int>, [samples, classes]: [usize; 2]) -> Tensor<2, Bool> {
    let device = index.device();
    let all = Tensor::<1, Int>::arange(0..classes as i64, &device).reshape([1, classes]);
    all.expand([samples, classes]).equal(index.expand([samples, classes]))
}

/// f_y before the bias, `[samples, 1]`.
fn label_logit(
    features: Tensor<2>,
    own: Tensor<2>,
    margin: &impl AngularMargin,
    lambda: f64,
) -> Tensor<2> {
    let plain = (features.clone() * own.clone()).sum_dim(1);
    let (x, x_scale) = scaled_rows(features);
    let (w, w_scale) = scaled_rows(own);
    let x_square = x.clone().square().sum_dim(1);
    let w_square = w.clone().square().sum_dim(1);
    let undefined = (x_square.clone().detach() * w_square.clone().detach()).equal_scalar(0.0);
    // Where the angle is undefined, any finite number will do, because the result is masked.
    let x_norm = x_square.mask_fill(undefined.clone(), 1.0).sqrt();
    let w_norm = w_square.mask_fill(undefined.clone(), 1.0).sqrt();
    let dot = (x * w).sum_dim(1);
    let cos = dot.clone() / (x_norm.clone() * w_norm.clone());
    // ψ is replaced by its tangent, with value and slope constant for autodiff. This avoids the infinite
    // derivative of the arc cosine at ±1 and the zero derivative of the clamp beyond ±1.
    let constant = cos.clone().detach();
    let (value, slope) = margin.value_and_slope(constant.clone().clamp(-1.0, 1.0));
    let psi = value + slope * (cos - constant);

    // Not `div_scalar`, whose derivative Burn computes in f32 for all float types.
    let (plain_share, margin_share) = shares(lambda);
    let mixed = (x_norm * w_norm * psi).mul_scalar(margin_share) + dot.mul_scalar(plain_share);
    // Where the angle is undefined, the logit is W·x = 0, with the derivatives of plain softmax.
    (mixed * x_scale * w_scale).mask_where(undefined, plain)
}

impl ComposedPass {
    pub fn report<M: AngularMargin>(
        &self,
        margin: M,
        lambda: f64,
        losses: Tensor<1>,
    ) -> Result<Report<M>, HeadError> {
        let [samples, depth] = self.features.dims();
        let [classes, _] = self.weight.dims();
        let labels: Vec<i64> = self.labels.clone().into_data().iter::<i64>().collect();
        if let Some(sample) = labels.iter().position(|y| !(0..classes as i64).contains(y)) {
            return Err(ShapeError::Label { sample, label: labels[sample], classes }.into());
        }
        let features = read(self.features.clone());
        if let Some((sample, index, value)) = first_not_finite(&features, depth) {
            return Err(HeadError::Feature { sample, index, value });
        }
        let weight = read(self.weight.clone());
        if let Some((class, index, value)) = first_not_finite(&weight, depth) {
            return Err(HeadError::Weight { class, index, value });
        }
        let bias = self.bias.clone().map_or(vec![0.0; classes], read);
        if let Some((class, _, value)) = first_not_finite(&bias, 1) {
            return Err(HeadError::Bias { class, value });
        }
        let logits = read(self.logits.clone());
        let losses = read(losses);
        let row = |values: &'_ [f64], i: usize| values[i * depth..][..depth].to_vec();
        let observations: Vec<LabelObservation> = (0..samples)
            .map(|i| {
                let y = labels[i] as usize;
                let geometry = geometry(&row(&features, i), &row(&weight, y));
                let geometry = self.normalisation.of_weights(geometry);
                observe(geometry, &logits[i * classes..][..classes], y, losses[i], bias[y])
            })
            .collect();
        if let Some(sample) = losses.iter().position(|loss| !loss.is_finite()) {
            let Geometry { feature_norm, weight_norm, .. } = observations[sample].geometry;
            let value = losses[sample];
            return Err(HeadError::Loss { sample, value, feature_norm, weight_norm });
        }
        let norms = weight.chunks_exact(depth).map(|w| geometry(w, w).weight_norm);
        let norms = norms.fold((f64::INFINITY, 0.0), |(low, high), n| (n.min(low), n.max(high)));
        Ok(Report::new(margin, lambda, observations.into_iter(), norms))
    }
}

fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn geometry(x: &[f64], w: &[f64]) -> Geometry {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    Geometry { dot: dot(x, w), feature_norm: dot(x, x).sqrt(), weight_norm: dot(w, w).sqrt() }
}

fn observe(
    geometry: Geometry,
    logits: &[f64],
    label: usize,
    loss: f64,
    bias: f64,
) -> LabelObservation {
    let largest = |logits: &[f64]| logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (before, after) = (largest(&logits[..label]), largest(&logits[label + 1..]));
    let correct = before < logits[label] && after <= logits[label];
    LabelObservation {
        geometry,
        plain: logits[label],
        others_max: before.max(after),
        correct,
        loss,
        bias,
    }
}

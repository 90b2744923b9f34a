//! The loss by the paper's definition in f64: the angle, then cos mθ, then the logits. It uses neither
//! polynomials nor closed-form gradients and shares nothing with the code under test.

use std::f64::consts::PI;

use super::batch::{Batch, norm, unit};
use super::way::Gradients;

/// The angle between two vectors by Kahan's formula, which unlike `acos` is accurate at 0 and π.
pub fn angle(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (unit(a), unit(b));
    let minus: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
    let plus: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    2.0 * norm(&minus).atan2(norm(&plus))
}

/// k, the index of the interval [kπ/m, (k+1)π/m] that contains θ.
pub fn interval(margin: f64, theta: f64) -> usize {
    ((margin * theta / PI) as usize).min(margin.ceil() as usize - 1)
}

/// ψ(θ) = (−1)^k cos mθ − 2k.
pub fn psi(margin: f64, theta: f64) -> f64 {
    let k = interval(margin, theta) as f64;
    (-1f64).powf(k) * (margin * theta).cos() - 2.0 * k
}

/// W_j·x + b_j.
pub fn plain_logit(batch: &Batch, sample: usize, class: usize) -> f64 {
    let (x, w) = (batch.feature(sample), batch.weight(class));
    x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() + batch.bias_of(class)
}

/// |W||x| (λ cos θ + ψ(θ)) / (1 + λ) + b of a sample's label; b where the angle is undefined.
pub fn label_logit(batch: &Batch, sample: usize) -> f64 {
    let label = batch.labels[sample];
    let (x, w) = (batch.feature(sample), batch.weight(label));
    let length = norm(x) * norm(w);
    if length == 0.0 {
        return batch.bias_of(label);
    }
    let theta = angle(x, w);
    let mixed = (batch.lambda * theta.cos() + psi(batch.margin, theta)) / (1.0 + batch.lambda);
    length * mixed + batch.bias_of(label)
}

/// The logits of a sample, with the margin in the label's logit.
pub fn logits(batch: &Batch, sample: usize) -> Vec<f64> {
    let mut logits: Vec<f64> =
        (0..batch.classes).map(|class| plain_logit(batch, sample, class)).collect();
    logits[batch.labels[sample]] = label_logit(batch, sample);
    logits
}

/// The cross-entropy of a sample minus ln K, the loss for equal logits.
///
/// This form is accurate for tiny logits: differences of 1e-40 would be lost next to ln K.
fn excess(batch: &Batch, sample: usize) -> f64 {
    let logits = logits(batch, sample);
    let own = logits[batch.labels[sample]];
    let classes = logits.len() as f64;
    let largest = logits.iter().map(|z| z - own).fold(0.0, f64::max);
    if largest < 1.0 {
        (logits.iter().map(|z| (z - own).exp_m1()).sum::<f64>() / classes).ln_1p()
    } else {
        let sum: f64 = logits.iter().map(|z| (z - own - largest).exp()).sum();
        largest + sum.ln() - classes.ln()
    }
}

/// The loss of every sample.
pub fn losses(batch: &Batch) -> Vec<f64> {
    let base = (batch.classes as f64).ln();
    (0..batch.samples()).map(|sample| excess(batch, sample) + base).collect()
}

/// The gradients of the mean loss by central differences, extrapolated from two steps.
///
/// A step is `step` times the norm of the row (or `step` itself, for the bias), so that no angle changes
/// by more than `step`. The error is about step⁴ times the fifth derivative, plus the rounding error of a
/// loss divided by the step.
pub fn gradients(batch: &Batch, step: f64) -> Gradients {
    let of_rows = |rows: &[f64], shift: fn(&mut Batch, usize, f64)| {
        let lengths: Vec<f64> = rows.chunks(batch.depth).map(norm).collect();
        let by_entry =
            |i: usize| derivative(batch, step * lengths[i / batch.depth], |b, by| shift(b, i, by));
        (0..rows.len()).map(by_entry).collect()
    };
    let by_bias = |i: usize| {
        derivative(batch, step, |b, by| b.bias.iter_mut().for_each(|bias| bias[i] += by))
    };
    Gradients {
        features: of_rows(&batch.features, |b, i, by| b.features[i] += by),
        weights: of_rows(&batch.weights, |b, i, by| b.weights[i] += by),
        bias: batch.bias.as_ref().map(|bias| (0..bias.len()).map(by_bias).collect()),
    }
}

fn derivative(batch: &Batch, step: f64, shift: impl Fn(&mut Batch, f64)) -> f64 {
    let central = |step: f64| {
        let moved = |by: f64| {
            let mut batch = batch.clone();
            shift(&mut batch, by);
            batch
        };
        let (up, down) = (moved(step), moved(-step));
        let rise = (0..batch.samples()).map(|i| excess(&up, i) - excess(&down, i)).sum::<f64>();
        rise / (2.0 * step * batch.samples() as f64)
    };
    (4.0 * central(step / 2.0) - central(step)) / 3.0
}

/// The gradients of the mean plain softmax loss, in closed form: (p − t) x and (p − t) W.
pub fn softmax_gradients(batch: &Batch) -> Gradients {
    let samples = batch.samples();
    let mut found = Gradients {
        features: vec![0.0; batch.features.len()],
        weights: vec![0.0; batch.weights.len()],
        bias: batch.bias.as_ref().map(|bias| vec![0.0; bias.len()]),
    };
    for i in 0..samples {
        let scores: Vec<f64> = (0..batch.classes).map(|j| plain_logit(batch, i, j)).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|z| (z - largest).exp()).sum();
        for (j, score) in scores.iter().enumerate() {
            let target = f64::from(u8::from(batch.labels[i] == j));
            let by_score = ((score - largest).exp() / sum - target) / samples as f64;
            for c in 0..batch.depth {
                found.features[i * batch.depth + c] += by_score * batch.weight(j)[c];
                found.weights[j * batch.depth + c] += by_score * batch.feature(i)[c];
            }
            found.bias.iter_mut().for_each(|bias| bias[j] += by_score);
        }
    }
    found
}

//! Batches: inputs of a head, exact in f32, so that every precision starts from the same numbers.

use lsoftmax_testing::{SplitMix, largest};

/// A number rounded to f32.
pub fn exact(value: f64) -> f64 {
    f64::from(value as f32)
}

/// Everything that a head's loss depends on. Rows of `features` are samples, rows of `weights` classes.
#[derive(Clone, Debug)]
pub struct Batch {
    pub margin: f64,
    pub lambda: f64,
    pub depth: usize,
    pub classes: usize,
    pub labels: Vec<usize>,
    pub features: Vec<f64>,
    pub weights: Vec<f64>,
    pub bias: Option<Vec<f64>>,
}

impl Batch {
    /// A batch of these rows, with margin 1 and λ = 0.
    pub fn new(features: &[&[f64]], weights: &[&[f64]], labels: &[usize]) -> Self {
        let flat = |rows: &[&[f64]]| rows.concat().into_iter().map(exact).collect();
        Self {
            margin: 1.0,
            lambda: 0.0,
            depth: weights[0].len(),
            classes: weights.len(),
            labels: labels.to_vec(),
            features: flat(features),
            weights: flat(weights),
            bias: None,
        }
    }

    /// Normal features and weights, whose logits are of order 1, and any labels.
    pub fn random(seed: u64, samples: usize, depth: usize, classes: usize) -> Self {
        let mut numbers = SplitMix(seed);
        let scale = 1.5 / (depth as f64).sqrt();
        let features = numbers.normals(samples * depth);
        let weights = numbers.normals(classes * depth).into_iter().map(|w| w * scale);
        Self {
            margin: 1.0,
            lambda: 0.0,
            depth,
            classes,
            labels: (0..samples).map(|_| numbers.below(classes)).collect(),
            features: features.into_iter().map(exact).collect(),
            weights: weights.map(exact).collect(),
            bias: None,
        }
    }

    /// Random weights, and a sample at each of these angles to the weights of its label. Lengths
    /// are between 0.7 and 1.3 times `norm`; labels cycle through the classes.
    pub fn at_angles(seed: u64, angles: &[f64], depth: usize, classes: usize, norm: f64) -> Self {
        let mut batch = Self::random(seed, angles.len(), depth, classes);
        let mut numbers = SplitMix(seed ^ 0xa5a5);
        batch.labels = (0..angles.len()).map(|i| i % classes).collect();
        for (i, angle) in angles.iter().enumerate() {
            let length = norm * (0.7 + 0.6 * numbers.uniform());
            let own = unit(batch.weight(batch.labels[i]));
            let any = numbers.normals(depth);
            let along: f64 = any.iter().zip(&own).map(|(a, o)| a * o).sum();
            let across =
                unit(&any.iter().zip(&own).map(|(a, o)| a - along * o).collect::<Vec<_>>());
            for (c, out) in batch.features[i * depth..][..depth].iter_mut().enumerate() {
                *out = exact(length * (angle.cos() * own[c] + angle.sin() * across[c]));
            }
        }
        batch
    }

    pub fn with_margin(mut self, margin: f64) -> Self {
        self.margin = margin;
        self
    }

    pub fn with_lambda(mut self, lambda: f64) -> Self {
        self.lambda = lambda;
        self
    }

    /// With a random bias, or without one.
    pub fn with_bias(mut self, bias: bool) -> Self {
        let mut numbers = SplitMix(self.labels.len() as u64 + 77);
        self.bias = bias.then(|| numbers.normals(self.classes).into_iter().map(exact).collect());
        self
    }

    /// With every feature and every weight multiplied.
    pub fn scaled(mut self, features: f64, weights: f64) -> Self {
        self.features.iter_mut().for_each(|x| *x = exact(*x * features));
        self.weights.iter_mut().for_each(|w| *w = exact(*w * weights));
        self
    }

    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    pub fn feature(&self, sample: usize) -> &[f64] {
        &self.features[sample * self.depth..][..self.depth]
    }

    pub fn weight(&self, class: usize) -> &[f64] {
        &self.weights[class * self.depth..][..self.depth]
    }

    pub fn bias_of(&self, class: usize) -> f64 {
        self.bias.as_ref().map_or(0.0, |bias| bias[class])
    }

    /// The largest |x| times the largest |W|, an upper bound of the logits without bias.
    pub fn largest_norm_product(&self) -> f64 {
        let longest = |rows: &[f64]| rows.chunks(self.depth).map(norm).fold(0.0, f64::max);
        longest(&self.features) * longest(&self.weights)
    }
}

pub fn norm(v: &[f64]) -> f64 {
    let largest = largest(v);
    let scale = if largest == 0.0 { 1.0 } else { largest };
    scale * v.iter().map(|v| (v / scale).powi(2)).sum::<f64>().sqrt()
}

pub fn unit(v: &[f64]) -> Vec<f64> {
    let length = norm(v);
    v.iter().map(|v| v / length).collect()
}

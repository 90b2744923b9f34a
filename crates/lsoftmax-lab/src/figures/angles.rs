//! The angles of Figure 2 as numbers, in any dimension.

use rayon::prelude::*;
use serde::Serialize;

use super::{Embedding, FigureError};

/// How far samples are from their class and from the others, in degrees.
///
/// A zero vector has no direction; it counts as being at 90° to everything.
///
/// ```
/// use lsoftmax_lab::figures::{ClassAngles, Embedding};
/// let weights = [1.0, 0.0, 0.0, 1.0];                       // two classes at 90°
/// let features = [3.0, 0.0, 0.0, 5.0];                      // one sample of each, in the direction of its class
/// let angles = ClassAngles::of(&Embedding::new(&features, &[0, 1], &weights, 2)?)?;
/// assert_eq!((angles.own, angles.margin), (0.0, 90.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassAngles {
    /// The angle between a sample and the weights of its class: mean over samples.
    pub own: f64,
    /// The angle between a sample and the mean direction of its class: mean over a class's
    /// samples, then over classes. The mean direction is that of the sum of unit vectors.
    pub spread: f64,
    /// How much closer a sample is to the weights of its class than to those of the nearest other
    /// class: mean over samples of (angle to the nearest other − angle to its own). Negative for a
    /// sample that is closer to another class.
    pub margin: f64,
    /// The empty angle between a class and its neighbour: mean over classes of the smallest
    /// (angle between both mean directions − q − q'), where 95 % of a class's samples are within q
    /// of its mean direction. Negative where classes overlap.
    pub gap: f64,
}

impl ClassAngles {
    /// Measures the angles. Classes without samples count with their weights, but have neither spread
    /// nor gap.
    ///
    /// # Errors
    /// When all samples belong to one class.
    pub fn of(embedding: &Embedding<'_>) -> Result<Self, FigureError> {
        let clusters: Vec<Cluster> = embedding
            .by_class()
            .par_iter()
            .filter(|samples| !samples.is_empty())
            .map(|samples| Cluster::of(embedding, samples))
            .collect();
        if clusters.len() < 2 {
            return Err(FigureError::OneClass);
        }
        let weights: Vec<Vec<f64>> =
            (0..embedding.classes()).map(|class| unit(embedding.weight(class))).collect();
        let (own, margin): (Vec<f64>, Vec<f64>) = (0..embedding.samples())
            .into_par_iter()
            .map(|sample| {
                own_angle_and_margin(
                    &unit(embedding.feature(sample)),
                    embedding.label(sample),
                    &weights,
                )
            })
            .unzip();
        let gaps: Vec<f64> =
            (0..clusters.len()).into_par_iter().map(|class| gap(class, &clusters)).collect();
        let spreads: Vec<f64> = clusters.iter().map(|cluster| cluster.spread).collect();
        Ok(Self {
            own: mean(&own),
            spread: mean(&spreads),
            margin: mean(&margin),
            gap: mean(&gaps),
        })
    }
}

/// The directions of a class's samples.
struct Cluster {
    /// The mean direction.
    direction: Vec<f64>,
    /// The mean angle between a sample and the mean direction.
    spread: f64,
    /// 95 % of the samples are within this angle of the mean direction.
    q95: f64,
}

impl Cluster {
    fn of(embedding: &Embedding<'_>, samples: &[usize]) -> Self {
        let mut sum = vec![0.0; embedding.columns()];
        for sample in samples {
            for (total, value) in sum.iter_mut().zip(unit(embedding.feature(*sample))) {
                *total += value;
            }
        }
        let direction = normalized(sum);
        let mut angles: Vec<f64> = samples
            .iter()
            .map(|sample| angle(&unit(embedding.feature(*sample)), &direction))
            .collect();
        let spread = mean(&angles);
        angles.sort_by(f64::total_cmp);
        let q95 = angles[(angles.len() * 19).div_ceil(20) - 1];
        Self { direction, spread, q95 }
    }
}

/// The angle to the weights of the label, and how much larger that to the nearest other class is.
fn own_angle_and_margin(sample: &[f64], label: usize, weights: &[Vec<f64>]) -> (f64, f64) {
    let own = angle(sample, &weights[label]);
    let others = weights.iter().enumerate().filter(|(class, _)| *class != label);
    let nearest =
        others.map(|(_, weight)| (dot(sample, weight), weight)).max_by(|a, b| a.0.total_cmp(&b.0));
    (own, nearest.map_or(0.0, |(_, weight)| angle(sample, weight) - own))
}

/// The empty angle to the nearest other cluster.
fn gap(class: usize, clusters: &[Cluster]) -> f64 {
    let own = &clusters[class];
    let others = clusters.iter().enumerate().filter(|(other, _)| *other != class);
    others
        .map(|(_, other)| angle(&own.direction, &other.direction) - own.q95 - other.q95)
        .fold(f64::INFINITY, f64::min)
}

/// The angle between two unit vectors in degrees; accurate near 0° and 180° too, unlike an arc cosine.
fn angle(a: &[f64], b: &[f64]) -> f64 {
    let (mut difference, mut sum) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        difference += (a - b) * (a - b);
        sum += (a + b) * (a + b);
    }
    if difference + sum < 3.0 {
        return 90.0; // |a − b|² + |a + b|² = 2|a|² + 2|b|², which is 4 unless one of them is zero
    }
    2.0 * difference.sqrt().atan2(sum.sqrt()).to_degrees()
}

fn unit(values: &[f32]) -> Vec<f64> {
    normalized(values.iter().map(|value| f64::from(*value)).collect())
}

/// A vector of length 1, or the zero vector.
fn normalized(mut values: Vec<f64>) -> Vec<f64> {
    let norm = dot(&values, &values).sqrt();
    if norm > 0.0 {
        values.iter_mut().for_each(|value| *value /= norm);
    }
    values
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

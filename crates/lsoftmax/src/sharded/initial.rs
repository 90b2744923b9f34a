//! Initial weights that are a function of the seed and the class.

use lsoftmax_kernels::Buffer;
use rayon::prelude::*;

use crate::sampling::mix;

/// He's normal initialisation of the weights of some classes, row by row.
pub(super) fn he_normal(seed: u64, classes: std::ops::Range<usize>, features: usize) -> Buffer {
    let mut weights = Buffer::new(classes.len() * features);
    let scale = (2.0 / features as f64).sqrt();
    let first = classes.start;
    weights.par_chunks_exact_mut(features).enumerate().for_each(|(row, weights)| {
        let stream = mix(mix(seed).wrapping_add((first + row) as u64));
        for (pair, weights) in (0u64..).zip(weights.chunks_mut(2)) {
            let [a, b] =
                normals(mix(stream.wrapping_add(2 * pair)), mix(stream.wrapping_add(2 * pair + 1)));
            weights
                .iter_mut()
                .zip([a, b])
                .for_each(|(weight, normal)| *weight = (scale * normal) as f32);
        }
    });
    weights
}

/// Two normal numbers of random bits, by Box and Muller.
fn normals(first: u64, second: u64) -> [f64; 2] {
    // Above 0, and at most 1.
    let uniform = |bits: u64| ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let length = (-2.0 * uniform(first).ln()).sqrt();
    let (sine, cosine) = (std::f64::consts::TAU * uniform(second)).sin_cos();
    [length * cosine, length * sine]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_normal_with_hes_variance_and_depend_on_seed_and_class_alone() {
        let (features, classes) = (33, 3000);
        let all = he_normal(7, 0..classes, features);
        assert_eq!(all[40 * features..60 * features], he_normal(7, 40..60, features)[..]);
        assert_ne!(all[..], he_normal(8, 0..classes, features)[..]);
        let count = all.len() as f64;
        let moment =
            |power: i32| all.iter().map(|w| f64::from(*w).powi(power)).sum::<f64>() / count;
        let variance = 2.0 / features as f64;
        assert!(moment(1).abs() < 4.0 * (variance / count).sqrt());
        assert!((moment(2) / variance - 1.0).abs() < 0.02);
        assert!((moment(4) / variance.powi(2) - 3.0).abs() < 0.1);
        // Neighbours, in a row and between rows, are independent.
        let product = |lag: usize| {
            let pairs = all.iter().zip(&all[lag..]);
            pairs.map(|(a, b)| f64::from(a * b)).sum::<f64>() / count / variance
        };
        assert!([1, 2, features].iter().all(|lag| product(*lag).abs() < 0.02));
    }
}

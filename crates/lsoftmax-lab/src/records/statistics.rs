//! Means over seeds, and tests of a difference between two kinds of runs.

use puruspe::{betai, erfc};
use serde::Serialize;

/// The mean and the sample standard deviation of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// How many numbers.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n − 1), if there are at least two.
    pub deviation: Option<f64>,
}

impl Sample {
    /// Of at least one number; `None` of none.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let count = numbers.len();
        if count == 0 {
            return None;
        }
        let mean = numbers.iter().sum::<f64>() / count as f64;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        Some(Self { count, mean, deviation })
    }

    /// The mean, and the standard deviation if there is one, with some decimals: `0.43 ± 0.01`.
    pub fn text(&self, decimals: usize) -> String {
        let mean = format!("{:.decimals$}", self.mean);
        self.deviation.map_or(mean.clone(), |deviation| format!("{mean} ± {deviation:.decimals$}"))
    }
}

/// The two-sided p-value of Student's t-test that paired differences have a mean of 0.
///
/// `None` with fewer than two differences, or if all are equal: then there is no estimate of their
/// spread.
///
/// ```
/// use lsoftmax_lab::records::paired_t_test;
/// // Three seeds: the margin was better by 1.2, 1.5 and 0.9 points.
/// let p = paired_t_test(&[1.2, 1.5, 0.9]).expect("three differences");
/// assert!((p - 0.0202).abs() < 1e-4);
/// ```
pub fn paired_t_test(differences: &[f64]) -> Option<f64> {
    let Sample { count, mean, deviation } = Sample::of(differences)?;
    let deviation = deviation.filter(|deviation| *deviation > 0.0)?;
    let freedom = (count - 1) as f64;
    let t = mean / (deviation / (count as f64).sqrt());
    Some(betai(freedom / 2.0, 0.5, freedom / (freedom + t * t)))
}

/// The two-sided p-value of McNemar's exact test that two models are equally good, from the images that
/// each got wrong, both in increasing order.
///
/// Only images on which the models differ count: under the hypothesis each is as likely to be the
/// mistake of one as of the other.
///
/// ```
/// use lsoftmax_lab::records::mcnemar_test;
/// assert_eq!(mcnemar_test(&[1, 2, 3], &[3, 4, 9]), 1.0);
/// // Eight mistakes that the other model does not make, and none the other way round: 2 · 0.5⁸.
/// assert!((mcnemar_test(&[1, 2, 3, 4, 5, 6, 7, 8], &[]) - 2.0 / 256.0).abs() < 1e-12);
/// ```
pub fn mcnemar_test(wrong: &[u32], other: &[u32]) -> f64 {
    let (first, second) = disagreements(wrong, other);
    let (fewer, total) = (first.min(second), first + second);
    if 2 * fewer >= total {
        return 1.0;
    }
    (2.0 * binomial_tail(total, fewer)).min(1.0)
}

/// How many images only the first of two models got wrong, and how many only the second; both lists are in increasing order.
fn disagreements(wrong: &[u32], other: &[u32]) -> (usize, usize) {
    let only = |these: &[u32], those: &[u32]| {
        these.iter().filter(|image| those.binary_search(image).is_err()).count()
    };
    (only(wrong, other), only(other, wrong))
}

/// The standard error of the difference between two models' error rates on the same images, from the images that each got wrong,
/// both in increasing order.
///
/// ```
/// use lsoftmax_lab::records::standard_error_of_pairs;
/// // 30 mistakes of one, 10 of the other, none in common: √(40 − 20²/100) of 100 images.
/// let (one, other): (Vec<u32>, Vec<u32>) = ((0..30).collect(), (50..60).collect());
/// assert!((standard_error_of_pairs(&one, &other, 100) - 0.06).abs() < 1e-12);
/// ```
pub fn standard_error_of_pairs(wrong: &[u32], other: &[u32], images: usize) -> f64 {
    let (first, second) = disagreements(wrong, other);
    let (first, second, images) = (first as f64, second as f64, images as f64);
    let variance = first + second - (first - second).powi(2) / images;
    variance.max(0.0).sqrt() / images
}

/// The same from the error rates alone, as if they were on different images: an upper estimate for models that err on the same ones.
pub fn standard_error_of_rates(rate: f64, other: f64, images: usize) -> f64 {
    ((rate * (1.0 - rate) + other * (1.0 - other)) / images as f64).sqrt()
}

/// The two-sided p-value that two models are equally good, from how many images each got wrong where it is not known which: as two
/// proportions of different images. Models that err on the same images differ by less, so it is an upper estimate for them.
///
/// ```
/// use lsoftmax_lab::records::two_proportions_test;
/// // 130 and 100 of 1,000: z = 0.03 / √(2 · 0.115 · 0.885 / 1000) = 2.103.
/// assert!((two_proportions_test(130, 100, 1000) - 0.0355).abs() < 1e-4);
/// assert_eq!(two_proportions_test(0, 0, 1000), 1.0);
/// ```
pub fn two_proportions_test(wrong: usize, other: usize, images: usize) -> f64 {
    if wrong == other {
        return 1.0;
    }
    let [rate, other] = [wrong, other].map(|wrong| wrong as f64 / images as f64);
    let pooled = (rate + other) / 2.0;
    let z = (rate - other).abs() / standard_error_of_rates(pooled, pooled, images);
    erfc(z / std::f64::consts::SQRT_2)
}

/// P(X ≤ k) of a binomial distribution with n trials and probability 1/2, for k below n/2.
fn binomial_tail(n: usize, k: usize) -> f64 {
    // The largest term, C(n, k) / 2ⁿ, by its logarithm: it may be smaller than any f64.
    let ratios = (1..=k).map(|i| ((n - k + i) as f64 / i as f64).ln());
    let largest = ratios.sum::<f64>() - n as f64 * std::f64::consts::LN_2;
    // The others relative to it, from the largest to the smallest.
    let (mut term, mut sum) = (1.0, 0.0);
    for j in (0..=k).rev() {
        sum += term;
        term *= j as f64 / (n - j + 1) as f64;
    }
    largest.exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_known_numbers() {
        let sample = Sample::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((sample.count, sample.mean), (8, 5.0));
        assert!((sample.deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Sample::of(&[3.0]).unwrap().deviation, None);
        assert_eq!(Sample::of(&[]), None);
    }

    /// Independent mistakes: the pairs' formula becomes that of independent rates.
    #[test]
    fn the_standard_errors_agree_where_mistakes_are_independent() {
        // Of 10,000 images every fifth, and of each hundred the first thirty.
        let fifths: Vec<u32> = (0..10_000).filter(|image| image % 5 == 0).collect();
        let thirties: Vec<u32> = (0..10_000).filter(|image| image / 10 % 10 < 3).collect();
        let pairs = standard_error_of_pairs(&fifths, &thirties, 10_000);
        let rates = standard_error_of_rates(0.2, 0.3, 10_000);
        assert!((pairs / rates - 1.0).abs() < 1e-12, "{pairs} {rates}");
        // Two models with the same mistakes have no difference to be uncertain of.
        assert_eq!(standard_error_of_pairs(&fifths, &fifths, 10_000), 0.0);
    }

    /// From tables of Student's distribution: the two-sided 5 % points.
    #[test]
    fn the_t_test_has_the_tabulated_critical_values() {
        for (freedom, critical) in [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216)] {
            // Differences with a mean of t/√n and a deviation of 1.
            let count = freedom + 1;
            let mut differences: Vec<f64> =
                (0..count).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
            if count % 2 == 1 {
                differences[count - 1] = 0.0;
            }
            let spread = Sample::of(&differences).unwrap().deviation.unwrap();
            let shift = critical / (count as f64).sqrt();
            let differences: Vec<f64> = differences.iter().map(|d| d / spread + shift).collect();
            let p = paired_t_test(&differences).unwrap();
            assert!((p - 0.05).abs() < 1e-5, "{freedom}: {p}");
        }
        assert_eq!(paired_t_test(&[1.0]), None);
        assert_eq!(paired_t_test(&[1.0, 1.0]), None);
    }

    /// The sum of the binomial distribution, term by term.
    #[test]
    fn mcnemar_agrees_with_the_binomial_sum() {
        for (first, second) in [(0, 1), (3, 10), (10, 3), (5, 5), (40, 70), (0, 0)] {
            let wrong: Vec<u32> = (0..first).collect();
            let other: Vec<u32> = (1000..1000 + second).collect();
            let (total, fewer) = (first + second, first.min(second));
            let mut term = 0.5f64.powi(total as i32);
            let mut tail = 0.0;
            for k in 0..=fewer {
                tail += term;
                term *= f64::from(total - k) / f64::from(k + 1);
            }
            let expected = (2.0 * tail).min(1.0);
            let found = mcnemar_test(&wrong, &other);
            assert!((found - expected).abs() < 1e-12, "{first}, {second}: {found}, not {expected}");
            assert_eq!(found, mcnemar_test(&other, &wrong));
        }
    }

    /// From tables of the normal distribution: the two-sided 5 % and 1 % points.
    #[test]
    fn the_test_of_two_proportions_has_the_tabulated_critical_values() {
        for (z, p) in [(1.959_964, 0.05), (2.575_829, 0.01)] {
            // Half of the images wrong on average: z standard errors are z √(images / 2) images.
            let images = 1_000_000_000;
            let more = (z * (images as f64 / 2.0).sqrt() / 2.0).round() as usize;
            let found = two_proportions_test(images / 2 + more, images / 2 - more, images);
            assert!((found - p).abs() < 1e-4, "{found}, not {p}");
        }
        // All images wrong with one model and none with the other.
        assert!(two_proportions_test(1000, 0, 1000) < 1e-100);
    }

    /// Where the distribution is all but normal.
    #[test]
    fn mcnemar_agrees_with_the_normal_distribution_for_many_images() {
        for (first, second) in [(1000, 1100), (4000, 4200), (9000, 9100)] {
            let wrong: Vec<u32> = (0..first).collect();
            let other: Vec<u32> = (20_000..20_000 + second).collect();
            let (first, second) = (f64::from(first), f64::from(second));
            // With the correction for continuity; P(|Z| > z) by Student's with very many degrees.
            let z = (second - first - 1.0) / (first + second).sqrt();
            let freedom = 1e6;
            let expected = betai(freedom / 2.0, 0.5, freedom / (freedom + z * z));
            let found = mcnemar_test(&wrong, &other);
            assert!((found / expected - 1.0).abs() < 0.02, "{found}, not {expected}");
        }
        let (wrong, other): (Vec<u32>, Vec<u32>) = ((0..1200).collect(), (5000..6800).collect());
        let p = mcnemar_test(&wrong, &other);
        assert!(p > 0.0 && p < 1e-20, "{p}");
    }
}

//! Every gradient against central differences of the definition, including singular points.

mod support;

use std::f64::consts::{FRAC_PI_2, PI};

use support::batch::norm;
use support::{
    Batch, LAMBDAS, MARGINS, Run, SplitMix, Way, assert_close, assert_finite,
    assert_gradients_close, definition,
};

/// f32 has seven digits, of which a few are lost in sums and in p.
const F32: f64 = 1e-5;

/// The tolerance of a way to compute the loss, where the differences are accurate to `differences`.
///
/// The fused operation computes the angle in f64. Composed in f32 its cosine is rounded, and the slope of
/// ψ, m at most angles, changes by about m³ per unit.
fn tolerance(way: Way, margin: f64, differences: f64) -> f64 {
    match way {
        Way::ComposedF64 => differences,
        Way::Composed => F32 + margin * margin * f64::from(f32::EPSILON),
        Way::Fused | Way::FusedBf16 => F32,
    }
}

/// The step of the differences, and their accuracy relative to the largest gradient.
#[derive(Clone, Copy)]
struct Differences {
    step: f64,
    good_to: f64,
}

/// In the middle of an interval: truncation (2e-4)⁴·m⁴ and rounding 1e-16·m/2e-4 are both below.
const GENERIC: Differences = Differences { step: 2e-4, good_to: 1e-8 };

/// A millionth from a knot, without stepping over it: the rounding error is 1e-16·m/1e-7.
const NEAR_A_KNOT: Differences = Differences { step: 2e-7, good_to: 1e-6 };

/// Compares a batch's gradients with the differences, in every way but bf16.
fn check(what: &str, batch: &Batch, differences: Differences) {
    check_ways(&[Way::Fused, Way::Composed, Way::ComposedF64], what, batch, differences);
}

fn check_ways(ways: &[Way], what: &str, batch: &Batch, differences: Differences) {
    let expected = definition::gradients(batch, differences.step);
    let what = format!(
        "{what}: margin {}, λ {}, bias {}",
        batch.margin,
        batch.lambda,
        batch.bias.is_some()
    );
    assert_finite(&format!("{what}, differences"), &expected);
    for way in ways {
        let run = Run::new(*way, batch);
        let tolerance = tolerance(*way, batch.margin, differences.good_to);
        assert!(run.loss.is_finite());
        assert_gradients_close(&format!("{what} ({way:?})"), &run.gradients, &expected, tolerance);
    }
}

/// An angle in every interval of ψ, away from the knots.
fn spread(margin: f64, numbers: &mut SplitMix) -> Vec<f64> {
    let pieces = margin.max(4.0);
    (0..pieces.ceil() as usize)
        .map(|k| (k as f64 + 0.2 + 0.6 * numbers.uniform()) * PI / pieces)
        .map(|angle| angle.min(0.95 * PI))
        .collect()
}

fn for_every_setting(mut check: impl FnMut(f64, f64, bool)) {
    for margin in MARGINS {
        for lambda in LAMBDAS {
            [false, true].into_iter().for_each(|bias| check(margin, lambda, bias));
        }
    }
}

#[test]
fn gradients_match_differences_at_generic_angles() {
    for_every_setting(|margin, lambda, bias| {
        let mut numbers = SplitMix(margin.to_bits() ^ lambda.to_bits());
        let angles = spread(margin, &mut numbers);
        let batch = Batch::at_angles(11, &angles, 5, 4, 0.8);
        check("generic", &batch.with_margin(margin).with_lambda(lambda).with_bias(bias), GENERIC);
    });
}

#[test]
fn gradients_match_differences_around_every_knot() {
    for_every_setting(|margin, lambda, bias| {
        let knots = (0..=margin as usize).map(|k| k as f64 * PI / margin);
        let around = knots.flat_map(|knot| [knot - 1e-6, knot + 1e-6]);
        let angles: Vec<f64> = around.filter(|angle| (0.0..PI).contains(angle)).collect();
        let batch = Batch::at_angles(12, &angles, 5, 4, 0.5);
        check("knots", &batch.with_margin(margin).with_lambda(lambda).with_bias(bias), NEAR_A_KNOT);
    });
}

/// So close to 0 and π that the rounded cosine is ±1 or beyond: the component of the gradient orthogonal
/// to the feature, m²θ, must not be lost. (At π only for an integer margin; others have a cusp there.)
///
/// A clamp of a cosine that was rounded beyond 1 used to lose it in the composed f32 loss.
#[test]
fn gradients_match_differences_at_small_angles() {
    for_every_setting(|margin, lambda, bias| {
        // Enough samples that some are rounded up.
        let small = [1e-2, 1e-3, 3e-4, 2e-4, 1e-4, 3e-5].repeat(4);
        let end = if margin.fract() == 0.0 { PI } else { 0.0 };
        let large = small.iter().map(|angle| (end - angle).abs()).collect();
        for angles in [small, large] {
            let batch = Batch::at_angles(21, &angles, 5, 4, 0.5).with_margin(margin);
            let differences = Differences { step: 1e-5, good_to: 1e-7 };
            check("small angles", &batch.with_lambda(lambda).with_bias(bias), differences);
        }
    });
}

/// A sample in the direction of its class weights, and one opposite; exact in f32.
fn parallel(factors: &[f64]) -> Batch {
    let mut batch = Batch::random(13, factors.len(), 6, 3);
    batch.labels = (0..factors.len()).map(|i| i % 3).collect();
    batch.features = (0..factors.len())
        .flat_map(|i| {
            batch.weight(batch.labels[i]).iter().map(|w| w * factors[i]).collect::<Vec<_>>()
        })
        .collect();
    batch
}

/// ψ is a polynomial of cos θ for an integer margin, and even in θ at 0 for any: both ends are smooth.
#[test]
fn gradients_match_differences_at_0_and_180_degrees() {
    for_every_setting(|margin, lambda, bias| {
        let against = margin.fract() == 0.0;
        let factors = if against { [0.5, -0.5, 1.0, -2.0] } else { [0.5, 1.0, 2.0, 0.25] };
        let batch = parallel(&factors).with_margin(margin).with_lambda(lambda).with_bias(bias);
        check("parallel", &batch, GENERIC);
    });
}

/// A non-integer margin has a cusp at π: ψ decreases in all directions at the same rate. The component
/// orthogonal to x cancels, and the rest is parallel: ∂f/∂x = (ψ|W| x/|x| + λW)/(1 + λ).
#[test]
fn at_the_cusp_of_a_real_margin_the_gradient_is_along_the_feature() {
    for lambda in LAMBDAS {
        let margin = 2.5;
        let batch = parallel(&[-0.5, -1.0, -2.0]).with_margin(margin).with_lambda(lambda);
        // Two digits less, since the terms that cancel are as large as the limited slope.
        for (way, tolerance) in [(Way::Fused, F32), (Way::Composed, 1e-3), (Way::ComposedF64, 1e-6)]
        {
            let found = Run::new(way, &batch).gradients;
            let what = format!("cusp, λ {lambda} ({way:?})");
            assert_finite(&what, &found);
            let mut expected = vec![0.0; batch.features.len()];
            for i in 0..batch.samples() {
                let (x, w) = (batch.feature(i), batch.weight(batch.labels[i]));
                let logits = definition::logits(&batch, i);
                let sum: f64 = logits.iter().map(|z| z.exp()).sum();
                for c in 0..batch.depth {
                    let along = definition::psi(margin, PI) * norm(w) * x[c] / norm(x);
                    let own = (along + lambda * w[c]) / (1.0 + lambda);
                    for (j, logit) in logits.iter().enumerate() {
                        let share = logit.exp() / sum / batch.samples() as f64;
                        let label = j == batch.labels[i];
                        let by_logit = if label { own } else { batch.weight(j)[c] };
                        let target = if label { own / batch.samples() as f64 } else { 0.0 };
                        expected[i * batch.depth + c] += share * by_logit - target;
                    }
                }
            }
            assert_close(&what, &found.features, &expected, tolerance);
        }
    }
}

/// At a distance δ from the cusp, the relative error of the slope is eps/δ², which in f32 is most of it.
/// Therefore only with an f64 cosine.
#[test]
fn gradients_match_differences_near_the_cusp_of_a_real_margin() {
    for distance in [1e-2, 1e-3, 1e-4, 1e-5] {
        let angles = [PI - distance, PI - 2.0 * distance];
        let batch = Batch::at_angles(14, &angles, 5, 4, 0.5).with_margin(2.5);
        let expected = definition::gradients(&batch, 1e-2 * distance);
        let uncertain = f64::EPSILON / (distance * distance);
        for (way, floor) in [(Way::Fused, F32), (Way::ComposedF64, 1e-8)] {
            let what = format!("{distance:e} from the cusp ({way:?})");
            let tolerance = floor + 4.0 * uncertain;
            assert_gradients_close(&what, &Run::new(way, &batch).gradients, &expected, tolerance);
        }
    }
}

/// For an even margin 90° is a knot, and the cosine is exactly 0 there. Stepping over a knot leaves
/// an error of step·m²/3.
#[test]
fn gradients_match_differences_at_90_degrees() {
    for_every_setting(|margin, lambda, bias| {
        let batch = Batch::new(
            &[&[0.75, 0.0, 0.0], &[0.0, 0.0, -1.5], &[0.0, 0.5, 0.0]],
            &[&[0.0, 1.25, 0.5], &[1.0, -0.75, 0.0], &[-0.5, 0.0, 2.0]],
            &[0, 1, 2],
        );
        let batch = batch.with_margin(margin).with_lambda(lambda).with_bias(bias);
        batch.labels.iter().enumerate().for_each(|(i, y)| {
            assert_eq!(definition::angle(batch.feature(i), batch.weight(*y)), FRAC_PI_2);
        });
        check("right angle", &batch, NEAR_A_KNOT);
    });
}

/// Where the angle is undefined, the gradient is that of plain softmax, which is not all zero.
#[test]
fn without_an_angle_the_gradients_are_those_of_softmax() {
    let zero_feature = |mut batch: Batch| {
        batch.features.fill(0.0);
        batch
    };
    let zero_weight = |mut batch: Batch| {
        batch.labels.fill(1);
        batch.weights[batch.depth..2 * batch.depth].fill(0.0);
        batch
    };
    let zero_both = |batch: Batch| zero_weight(zero_feature(batch));
    let kinds: [(&str, &dyn Fn(Batch) -> Batch); 3] =
        [("x = 0", &zero_feature), ("W = 0", &zero_weight), ("both", &zero_both)];
    for (what, degenerate) in kinds {
        for_every_setting(|margin, lambda, bias| {
            let batch = Batch::random(15, 4, 5, 3).with_bias(bias);
            let batch = degenerate(batch).with_margin(margin).with_lambda(lambda);
            let expected = definition::softmax_gradients(&batch);
            for (way, tolerance) in
                [(Way::Fused, F32), (Way::Composed, F32), (Way::ComposedF64, 1e-12)]
            {
                let run = Run::new(way, &batch);
                let what = format!("{what}, margin {margin}, λ {lambda} ({way:?})");
                assert_finite(&what, &run.gradients);
                assert_gradients_close(&what, &run.gradients, &expected, tolerance);
                assert_close(&what, &run.losses, &definition::losses(&batch), tolerance);
            }
            if what != "both" {
                assert!(expected.parts().iter().any(|(_, part)| part.iter().any(|g| *g != 0.0)));
            }
        });
    }
}

/// Nothing over- or underflows. The composed f32 loss is not tested near the limits of f32, since its
/// intermediate gradients are as large as the logits.
///
/// The fused gradient used to be −∞ at |W| = 1e18: a log-sum-exp was lost next to the label's huge logit.
#[test]
fn gradients_match_differences_at_extreme_norms() {
    let norms = [1e-20, 1.0, 1e18];
    for margin in MARGINS {
        for lambda in LAMBDAS {
            let angles = spread(margin, &mut SplitMix(16));
            let batch = Batch::at_angles(17, &angles[..4], 6, 5, 1.0);
            let batch = batch.with_margin(margin).with_lambda(lambda);
            for (x, w) in norms.iter().flat_map(|x| norms.iter().map(move |w| (*x, *w))) {
                let ways = [Way::Fused, Way::ComposedF64, Way::Composed];
                let ways = if x * w < 1e-37 { &ways[..2] } else { &ways };
                let what = format!("|x| ~ {x:e}, |W| ~ {w:e}");
                check_ways(ways, &what, &batch.clone().scaled(x, w), GENERIC);
            }
        }
    }
}

#[test]
fn gradients_match_differences_for_every_kind_of_batch() {
    for_every_setting(|margin, lambda, bias| {
        let angles = spread(margin, &mut SplitMix(18));
        let shapes = [
            ("one sample", 1, 4, vec![2]),
            ("one class", 4, 1, vec![0; 4]),
            ("one sample, one class", 1, 1, vec![0]),
            ("two classes", 4, 2, vec![1, 0, 0, 1]),
            ("one label for all", 4, 3, vec![2; 4]),
            ("classes without samples", 4, 9, vec![8, 0, 0, 4]),
        ];
        for (what, samples, classes, labels) in shapes {
            let batch = Batch::at_angles(19, &angles[..samples], 5, classes, 0.8);
            // The angles were chosen for other labels; with these they are arbitrary.
            let batch = Batch { labels, ..batch }.with_margin(margin).with_lambda(lambda);
            check(what, &batch.with_bias(bias), GENERIC);
        }
    });
}

/// Adding a constant to all logits changes nothing, so the gradient of the bias sums to zero for logits of
/// any size.
#[test]
fn the_gradient_of_the_bias_sums_to_zero_for_large_logits() {
    for (margin, shift) in [1.0, 4.0].into_iter().flat_map(|m| [0.0, 1e3, 1e5, 1e6].map(|s| (m, s)))
    {
        let mut batch = Batch::random(20, 6, 5, 7).with_margin(margin).with_bias(true);
        batch.bias.iter_mut().flatten().for_each(|bias| *bias += shift);
        for way in [Way::Fused, Way::Composed] {
            let bias = Run::new(way, &batch).gradients.bias.unwrap();
            let sizes: f64 = bias.iter().map(|g| g.abs()).sum();
            let sum: f64 = bias.iter().sum();
            // A rounding for each of the seven classes and six samples.
            let tolerance = 42.0 * f64::from(f32::EPSILON) * sizes;
            assert!(sum.abs() <= tolerance, "margin {margin}, shift {shift} ({way:?}): {sum:e}");
        }
    }
}

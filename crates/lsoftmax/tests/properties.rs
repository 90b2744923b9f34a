//! Properties of any batch: relations to softmax, between fused and composed, and under reordering.

mod support;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::Device;
use lsoftmax::Margin;
use proptest::prelude::*;
use support::batch::norm;
use support::way::values;
use support::{
    Batch, Gradients, Run, Setup, SplitMix, Way, assert_close, assert_same_bits, definition,
};

const F32: f64 = f32::EPSILON as f64;

fn any_margin() -> impl Strategy<Value = f64> {
    prop_oneof![(1u8..=20).prop_map(f64::from), 1.0..8.0]
}

fn any_lambda() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 1e-3..1e4]
}

prop_compose! {
    fn any_batch()(
        seed in any::<u64>(),
        samples in 1usize..20,
        depth in 1usize..24,
        classes in 1usize..40,
        bias in any::<bool>(),
        margin in any_margin(),
        lambda in any_lambda(),
    ) -> Batch {
        let batch = Batch::random(seed, samples, depth, classes);
        batch.with_bias(bias).with_margin(margin).with_lambda(lambda)
    }
}

/// The error bounds of f32 for the losses and gradients of a batch.
///
/// A label's logit is up to 2m|W||x|, and the error of its cosine is multiplied by the slope of ψ. This is
/// the absolute error of a loss and the relative error of a probability. A gradient is a sum of
/// probabilities times rows of at most 2m their length.
struct Uncertain {
    loss: f64,
    features: f64,
    weights: f64,
    bias: f64,
}

impl Uncertain {
    fn new(batch: &Batch) -> Self {
        let longest = |rows: &[f64]| rows.chunks(batch.depth).map(norm).fold(0.0, f64::max);
        let m = 2.0 * batch.margin;
        let bias = batch.bias.as_ref().map_or(0.0, |b| b.iter().fold(0.0, |l, b| b.abs().max(l)));
        let steepest = angles(batch).map(|theta| slope(batch.margin, theta)).fold(0.0, f64::max);
        let loss = 8.0 * F32 * (1.0 + (m + steepest) * batch.largest_norm_product() + bias);
        Self {
            loss,
            features: loss * m * longest(&batch.weights) / batch.samples() as f64,
            weights: loss * m * longest(&batch.features),
            bias: loss,
        }
    }

    /// The same for a real margin composed in f32. Near the cusp at θ = π the relative error of the slope is
    /// eps/sin²θ; within 1/20 there is nothing left to compare.
    fn with_cusp(mut self, batch: &Batch) -> Option<Self> {
        if batch.margin.fract() != 0.0 {
            let sine = angles(batch).map(f64::sin).fold(f64::INFINITY, f64::min);
            let factor = 1.0 + 1.0 / (sine * sine);
            self.features *= factor;
            self.weights *= factor;
            return (sine > 0.05).then_some(self);
        }
        Some(self)
    }

    fn check(&self, what: &str, found: &Run, expected: &Run) {
        assert_close(&format!("{what}, losses"), &found.losses, &expected.losses, self.loss);
        assert_close(&format!("{what}, loss"), &[found.loss], &[expected.loss], self.loss);
        let tolerances = [self.features, self.weights, self.bias];
        let parts = found.gradients.parts().into_iter().zip(expected.gradients.parts());
        for (((part, found), (_, expected)), tolerance) in parts.zip(tolerances) {
            assert_close(&format!("{what}, {part}"), found, expected, tolerance);
        }
    }
}

/// θ of every sample.
fn angles(batch: &Batch) -> impl Iterator<Item = f64> {
    let own = |i: usize| batch.weight(batch.labels[i]);
    (0..batch.samples()).map(move |i| definition::angle(batch.feature(i), own(i)))
}

/// The slope of ψ with respect to the cosine: m sin mθ/sin θ, and at a cusp, where that is infinite, the
/// mean over a unit in the last place of the cosine.
fn slope(margin: f64, theta: f64) -> f64 {
    let at_a_cusp = margin * (2.0 / F32).sqrt();
    let sine = theta.sin();
    if sine == 0.0 {
        at_a_cusp
    } else {
        (margin * (margin * theta).sin().abs() / sine).min(at_a_cusp)
    }
}

/// Rows in another order: row i of the result is row `order[i]`.
fn reordered(rows: &[f64], width: usize, order: &[usize]) -> Vec<f64> {
    order.iter().flat_map(|i| rows[i * width..][..width].to_vec()).collect()
}

proptest! {
    #[test]
    fn margin_one_is_softmax_for_any_lambda_to_the_bit(batch in any_batch(), lambda in any_lambda()) {
        let batch = batch.with_margin(1.0);
        for way in Way::ALL {
            let found = Run::new(way, &batch.clone().with_lambda(lambda));
            prop_assert_eq!(found, Run::new(way, &batch.clone().with_lambda(0.0)), "{:?}", way);
        }
    }

    #[test]
    fn composed_with_margin_one_is_linear_and_cross_entropy_to_the_bit(batch in any_batch()) {
        let setup = Setup::new(Way::Composed, &batch.with_margin(1.0));
        let output = setup.output();
        let found = setup.gradients(&output.loss);

        let other = Setup { features: setup.features.clone().detach().require_grad(), ..setup };
        let linear = other.head.to_linear();
        let cross_entropy = CrossEntropyLossConfig::new().init(&Device::flex().autodiff());
        let loss = cross_entropy.forward(linear.forward(other.features.clone()), other.labels.clone());
        assert_same_bits("loss", &values(output.loss), &values(loss.clone()));
        let gradients = loss.backward();
        let weight = linear.weight.val().grad(&gradients).unwrap().transpose();
        assert_same_bits("features", &found.features, &values(other.features.grad(&gradients).unwrap()));
        assert_same_bits("weights", &found.weights, &values(weight));
        if let (Some(found), Some(bias)) = (found.bias, linear.bias) {
            assert_same_bits("bias", &found, &values(bias.val().grad(&gradients).unwrap()));
        }
    }

    /// With λ the margin reduces the logit by |W||x| (cos θ − ψ)/(1 + λ), which bounds the change of the
    /// loss.
    #[test]
    fn a_large_lambda_tends_to_softmax(
        batch in any_batch(),
        lambda in prop_oneof![1e2..1e12, Just(1e39), Just(f64::MAX)],
    ) {
        let uncertain = Uncertain::new(&batch).loss;
        for way in [Way::Fused, Way::Composed] {
            let softmax = Run::new(way, &batch.clone().with_margin(1.0)).losses;
            let annealed = Run::new(way, &batch.clone().with_lambda(lambda)).losses;
            for (i, (annealed, softmax)) in annealed.iter().zip(softmax).enumerate() {
                let (x, w) = (batch.feature(i), batch.weight(batch.labels[i]));
                let theta = definition::angle(x, w);
                let gap = theta.cos() - definition::psi(batch.margin, theta);
                let left = norm(x) * norm(w) * gap / (1.0 + lambda);
                prop_assert!((annealed - softmax).abs() <= left + uncertain, "{way:?}, {i}");
            }
        }
    }

    #[test]
    fn the_loss_is_at_least_that_of_softmax_and_decreases_with_lambda(batch in any_batch()) {
        let uncertain = Uncertain::new(&batch).loss;
        for way in [Way::Fused, Way::Composed] {
            let losses = |batch: &Batch| Run::new(way, batch).losses;
            let softmax = losses(&batch.clone().with_margin(1.0));
            let more = losses(&batch.clone().with_lambda(2.0 * batch.lambda + 1.0));
            for ((annealed, more), softmax) in losses(&batch).iter().zip(more).zip(softmax) {
                prop_assert!(*annealed >= more - uncertain, "{way:?}: {annealed} < {more}");
                prop_assert!(more >= softmax - uncertain, "{way:?}: {more} < {softmax}");
            }
        }
    }

    /// The gradient of a class's bias is its probability. For any m and λ, the ratio of two classes other
    /// than the label is e^(z_j − z_l), and their sum is 1 − e^−loss.
    #[test]
    fn margin_and_lambda_do_not_change_the_other_logits(batch in any_batch()) {
        let one = Batch { labels: batch.labels[..1].to_vec(), features: batch.feature(0).to_vec(), ..batch };
        let batch = one.with_bias(true);
        let uncertain = Uncertain::new(&batch).loss;
        for way in [Way::Fused, Way::Composed] {
            let Run { loss, gradients, .. } = Run::new(way, &batch);
            let shares = gradients.bias.unwrap();
            let others: Vec<usize> = (0..batch.classes).filter(|j| *j != batch.labels[0]).collect();
            let sum: f64 = others.iter().map(|j| shares[*j]).sum();
            prop_assert!((sum - -(-loss).exp_m1()).abs() <= uncertain, "{way:?}: {sum}");
            for (j, l) in others.iter().zip(others.iter().skip(1)) {
                prop_assume!(shares[*j].min(shares[*l]) > 1e-30);
                let found = (shares[*j] / shares[*l]).ln();
                let logit = |class| definition::plain_logit(&batch, 0, class);
                prop_assert!((found - (logit(*j) - logit(*l))).abs() <= 2.0 * uncertain, "{way:?}");
            }
        }
    }

    #[test]
    fn fused_and_composed_agree_on_losses_and_gradients(batch in any_batch()) {
        let uncertain = Uncertain::new(&batch).with_cusp(&batch);
        prop_assume!(uncertain.is_some());
        let (fused, composed) = (Run::new(Way::Fused, &batch), Run::new(Way::Composed, &batch));
        uncertain.unwrap().check("fused and composed", &fused, &composed);
    }

    #[test]
    fn losses_follow_the_definition(batch in any_batch()) {
        let expected = definition::losses(&batch);
        let uncertain = Uncertain::new(&batch).loss;
        for (way, tolerance) in [(Way::Fused, uncertain), (Way::Composed, uncertain), (Way::ComposedF64, 1e-8 * uncertain)] {
            assert_close(&format!("{way:?}"), &Run::new(way, &batch).losses, &expected, tolerance);
        }
    }

    #[test]
    fn the_order_of_samples_does_not_matter(batch in any_batch(), seed in any::<u64>()) {
        let order = SplitMix(seed).permutation(batch.samples());
        let moved = Batch {
            labels: order.iter().map(|i| batch.labels[*i]).collect(),
            features: reordered(&batch.features, batch.depth, &order),
            ..batch.clone()
        };
        for way in [Way::Fused, Way::Composed] {
            let (found, straight) = (Run::new(way, &moved), Run::new(way, &batch));
            let expected = Run {
                losses: reordered(&straight.losses, 1, &order),
                gradients: Gradients {
                    features: reordered(&straight.gradients.features, batch.depth, &order),
                    ..straight.gradients
                },
                ..straight
            };
            Uncertain::new(&batch).check(&format!("samples in another order ({way:?})"), &found, &expected);
        }
    }

    #[test]
    fn the_order_of_classes_does_not_matter(batch in any_batch(), seed in any::<u64>()) {
        let order = SplitMix(seed).permutation(batch.classes);
        let renamed = |label: &usize| order.iter().position(|class| class == label).unwrap();
        let moved = Batch {
            labels: batch.labels.iter().map(renamed).collect(),
            weights: reordered(&batch.weights, batch.depth, &order),
            bias: batch.bias.as_ref().map(|bias| reordered(bias, 1, &order)),
            ..batch.clone()
        };
        for way in [Way::Fused, Way::Composed] {
            let (found, straight) = (Run::new(way, &moved), Run::new(way, &batch));
            let expected = Run {
                gradients: Gradients {
                    weights: reordered(&straight.gradients.weights, batch.depth, &order),
                    bias: straight.gradients.bias.map(|bias| reordered(&bias, 1, &order)),
                    ..straight.gradients
                },
                ..straight
            };
            Uncertain::new(&batch).check(&format!("classes in another order ({way:?})"), &found, &expected);
        }
    }

    #[test]
    fn a_single_sample_has_the_same_loss_as_in_a_batch(batch in any_batch()) {
        for way in [Way::Fused, Way::Composed] {
            let together = Run::new(way, &batch).losses;
            for (i, expected) in together.iter().enumerate() {
                let alone = Batch {
                    labels: vec![batch.labels[i]],
                    features: batch.feature(i).to_vec(),
                    ..batch.clone()
                };
                let found = Run::new(way, &alone).losses;
                assert_close(&format!("{way:?}"), &found, &[*expected], Uncertain::new(&batch).loss);
            }
        }
    }
}

/// With equal weights for all classes all logits are equal in any precision, since softmax takes the
/// label's logit from the same product as the others, and the loss is ln K.
#[test]
fn softmax_rounds_the_label_as_it_rounds_the_others() {
    for seed in 0..20 {
        let mut batch = Batch::random(seed, 6, 33, 40);
        let row = batch.weight(0).to_vec();
        batch.weights = row.repeat(batch.classes);
        for way in Way::ALL {
            let expected = vec![(batch.classes as f64).ln(); 6];
            assert_close(&format!("{way:?}"), &Run::new(way, &batch).losses, &expected, 8.0 * F32);
        }
    }
}

/// The report has the head's margin, also if it is not an integer.
#[test]
fn a_head_keeps_its_margin() {
    for m in [1.0, 2.5, 4.0] {
        let setup = Setup::new(Way::Fused, &Batch::random(1, 4, 3, 5).with_margin(m));
        assert_eq!(setup.head.margin, Margin::new(m).unwrap());
        assert_eq!(setup.output().report().unwrap().margin.value(), m);
    }
}

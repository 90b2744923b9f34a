//! Every case of the reference fixtures, with every implementation and precision.

mod support;

use burn::tensor::{Bool, DType, Device, Tensor, TensorData};
use lsoftmax::{ContrastiveLossConfig, HingeLossConfig, HingeNorm};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use support::way::{labels, tensor, values};
use support::{Batch, Gradients, Run, Setup, Way, assert_close, assert_gradients_close, largest};

type Rows = Vec<Vec<f64>>;

/// A case of `lsoftmax.json` or `metric_learning.json`.
#[derive(Deserialize)]
struct Case {
    name: String,
    margin: f64,
    lambda: f64,
    features: Rows,
    weights: Rows,
    bias: Option<Vec<f64>>,
    labels: Vec<usize>,
    loss: f64,
    losses: Vec<f64>,
    logits: Rows,
    grad_features: Rows,
    grad_weights: Rows,
    grad_bias: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

fn fixture<T: DeserializeOwned>(name: &str) -> T {
    let path = format!("{}/../../reference/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Case {
    fn batch(&self) -> Batch {
        Batch {
            margin: self.margin,
            lambda: self.lambda,
            depth: self.weights[0].len(),
            classes: self.weights.len(),
            labels: self.labels.clone(),
            features: self.features.concat(),
            weights: self.weights.concat(),
            bias: self.bias.clone(),
        }
    }

    fn gradients(&self) -> Gradients {
        Gradients {
            features: self.grad_features.concat(),
            weights: self.grad_weights.concat(),
            bias: self.grad_bias.clone(),
        }
    }

    /// Compares all results with the given tolerances.
    fn check(&self, way: Way, tolerance: impl Fn(&Batch) -> Tolerance) {
        let batch = self.batch();
        let tolerance = tolerance(&batch);
        let setup = Setup::new(way, &batch);
        let run = Run::new(way, &batch);
        let what = |part: &str| format!("{} ({way:?}), {part}", self.name);
        assert_close(&what("loss"), &[run.loss], &[self.loss], tolerance.loss);
        assert_close(&what("losses"), &run.losses, &self.losses, tolerance.loss);
        let logits = values(setup.head.logits(setup.features.clone()));
        let expected = self.logits.concat();
        assert_close(&what("logits"), &logits, &expected, tolerance.logits * largest(&expected));
        assert_gradients_close(
            &what("all"),
            &run.gradients,
            &self.gradients(),
            tolerance.gradients,
        );
    }
}

/// The tolerances of an implementation.
struct Tolerance {
    /// Of a loss, absolute.
    loss: f64,
    /// Of a logit at inference, relative to the largest.
    logits: f64,
    /// Of a gradient, relative to the largest.
    gradients: f64,
}

impl Tolerance {
    /// A few units in the last place. A loss is a difference of logits, so its error is relative to their
    /// size.
    fn rounding(relative: f64) -> impl Fn(&Batch) -> Self {
        move |batch| Self {
            loss: relative * batch.largest_norm_product().max(1.0) * batch.margin,
            logits: relative,
            gradients: relative,
        }
    }

    /// bf16 has eight bits, so the relative error is at most 2⁻⁹ for an operand and 2⁻⁸ for a product. The
    /// error is δ = 2⁻⁸|W||x| for a logit, 2δ for a loss, and e^2δ − 1, relative, for a probability.
    /// Gradients are products of these and of rounded operands; twice that, since the label's term and the
    /// others may cancel. The logits at inference are computed in f32.
    fn bf16(batch: &Batch) -> Self {
        let delta = batch.largest_norm_product() / 256.0;
        Self {
            loss: 2.0 * delta,
            logits: 1e-5,
            gradients: 2.0 * ((2.0 * delta).exp_m1() + 1.0 / 256.0),
        }
    }
}

fn all_cases() -> Vec<Case> {
    let [ours, metric_learning]: [Cases; 2] =
        ["lsoftmax.json", "metric_learning.json"].map(fixture);
    assert_eq!((ours.cases.len(), metric_learning.cases.len()), (65, 12));
    ours.cases.into_iter().chain(metric_learning.cases).collect()
}

#[test]
fn fused_agrees_with_the_reference_on_loss_logits_and_gradients() {
    all_cases().iter().for_each(|case| case.check(Way::Fused, Tolerance::rounding(1e-5)));
}

#[test]
fn fused_in_bf16_agrees_with_the_reference_as_far_as_eight_bits_go() {
    all_cases().iter().for_each(|case| case.check(Way::FusedBf16, Tolerance::bf16));
}

#[test]
fn composed_agrees_with_the_reference_on_loss_logits_and_gradients() {
    all_cases().iter().for_each(|case| case.check(Way::Composed, Tolerance::rounding(1e-5)));
}

/// Burn's `div_scalar` has an f32 derivative, which used to cause errors of 4e-9 in gradients for λ > 0.
#[test]
fn composed_in_f64_agrees_with_the_reference_to_ten_digits() {
    all_cases().iter().for_each(|case| case.check(Way::ComposedF64, Tolerance::rounding(1e-10)));
}

/// The fixtures' scores as logits of a head: with unit vectors for weights, features are scores.
#[test]
fn a_head_of_margin_one_is_the_reference_softmax() {
    for case in fixture::<Baselines>("baselines.json").softmax {
        let classes = case.scores[0].len();
        let identity: Rows = (0..classes)
            .map(|i| (0..classes).map(|j| f64::from(u8::from(i == j))).collect())
            .collect();
        let rows = |rows: &Rows| rows.concat();
        let batch = Batch {
            margin: 1.0,
            lambda: 0.0,
            depth: classes,
            classes,
            labels: case.labels.clone(),
            features: rows(&case.scores),
            weights: rows(&identity),
            bias: None,
        };
        for (way, relative) in
            [(Way::Fused, 1e-6), (Way::Composed, 1e-6), (Way::ComposedF64, 1e-12)]
        {
            let run = Run::new(way, &batch);
            let what = |part: &str| format!("{} ({way:?}), {part}", case.name);
            let tolerance = relative * largest(&rows(&case.scores));
            assert_close(&what("loss"), &[run.loss], &[case.loss], tolerance);
            assert_close(&what("losses"), &run.losses, &case.losses, tolerance);
            // The error of a logit is the relative error of a probability, which is at most 1.
            let expected = rows(&case.grad_scores);
            assert_close(&what("gradient"), &run.gradients.features, &expected, tolerance);
        }
    }
}

#[derive(Deserialize)]
struct Baselines {
    hinge: Vec<Hinge>,
    contrastive: Vec<Contrastive>,
    softmax: Vec<Softmax>,
}

#[derive(Deserialize)]
struct Hinge {
    name: String,
    norm: String,
    scores: Rows,
    labels: Vec<usize>,
    loss: f64,
    grad_scores: Rows,
}

#[derive(Deserialize)]
struct Contrastive {
    name: String,
    margin: f64,
    a: Rows,
    b: Rows,
    same: Vec<u8>,
    loss: f64,
    losses: Vec<f64>,
    grad_a: Rows,
    grad_b: Rows,
}

#[derive(Deserialize)]
struct Softmax {
    name: String,
    scores: Rows,
    labels: Vec<usize>,
    loss: f64,
    losses: Vec<f64>,
    grad_scores: Rows,
}

/// A leaf with these rows.
fn leaf(rows: &Rows, dtype: DType) -> Tensor<2> {
    let device = Device::flex().autodiff();
    tensor(&rows.concat(), [rows.len(), rows[0].len()], &device, dtype).require_grad()
}

/// The other losses are sums and products of a few numbers: a few units in the last place.
const BASELINE_PRECISIONS: [(DType, f64); 2] = [(DType::F32, 1e-6), (DType::F64, 1e-13)];

#[test]
fn hinge_agrees_with_the_reference() {
    for case in fixture::<Baselines>("baselines.json").hinge {
        let norm = if case.norm == "l1" { HingeNorm::L1 } else { HingeNorm::L2 };
        let hinge = HingeLossConfig::new().with_norm(norm).init();
        for (dtype, relative) in BASELINE_PRECISIONS {
            let what = format!("{} {} ({dtype:?})", case.name, case.norm);
            let scores = leaf(&case.scores, dtype);
            let loss = hinge.forward(scores.clone(), labels(&case.labels, &scores.device()));
            let found = scores.grad(&loss.backward()).unwrap();
            let (found, expected) = (values(found), case.grad_scores.concat());
            assert_close(&what, &values(loss), &[case.loss], relative * case.loss);
            assert_close(&what, &found, &expected, relative * largest(&expected));
        }
    }
}

#[test]
fn contrastive_agrees_with_the_reference() {
    for case in fixture::<Baselines>("baselines.json").contrastive {
        let contrastive = ContrastiveLossConfig::new().with_margin(case.margin).init();
        let same: Vec<bool> = case.same.iter().map(|same| *same == 1).collect();
        for (dtype, relative) in BASELINE_PRECISIONS {
            let what = |part: &str| format!("{} ({dtype:?}), {part}", case.name);
            let (a, b) = (leaf(&case.a, dtype), leaf(&case.b, dtype));
            let data = TensorData::new(same.clone(), [same.len()]);
            let same = Tensor::<1, Bool>::from_data(data, &a.device());
            let losses = contrastive.forward_no_reduction(a.clone(), b.clone(), same.clone());
            assert_close(
                &what("losses"),
                &values(losses),
                &case.losses,
                relative * largest(&case.losses),
            );
            let loss = contrastive.forward(a.clone(), b.clone(), same);
            let gradients = loss.backward();
            assert_close(
                &what("loss"),
                &values(loss),
                &[case.loss],
                relative * largest(&case.losses),
            );
            for (part, leaf, expected) in [("a", a, &case.grad_a), ("b", b, &case.grad_b)] {
                let (found, expected) = (values(leaf.grad(&gradients).unwrap()), expected.concat());
                assert_close(&what(part), &found, &expected, relative * largest(&expected));
            }
        }
    }
}

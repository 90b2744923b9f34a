//! Compares the head's kernels on every path with a naive f64 version, over awkward sizes.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx_emulator;
mod engines;

use std::sync::Arc;

use lsoftmax_kernels::head::{
    HeadForward, HeadGradients, HeadProblem, LabelGradient, WantedGradients, backward, forward,
};
use lsoftmax_kernels::{Engine, KernelPath, Precision};
use lsoftmax_testing::{Congruential, assert_close_to_scale, largest};

fn engines() -> Vec<Engine> {
    engines::engines_of(&[Precision::F32, Precision::Bf16, Precision::Bf16Weights])
}

const ALL: WantedGradients = WantedGradients { features: true, weights: true, bias: true };

/// Samples, features and classes: ones, primes, and sizes around the edges of every register block.
const SIZES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (1, 3, 2),
    (5, 2, 10),
    (17, 33, 7),
    (250, 31, 3),
    (16, 32, 32),
    (33, 64, 113),
    (7, 512, 56),
    (64, 1, 57),
    (31, 100, 1000),
    (256, 2, 10),
    (3, 17, 1801),
    (40, 16, 7000),
    (96, 48, 224),
];

struct HeadCase {
    features: Vec<f32>,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    labels: Vec<u32>,
    depth: usize,
    classes: usize,
    /// Whether logits are W·x/|W|.
    normalised: bool,
}

impl HeadCase {
    fn new((samples, depth, classes): (usize, usize, usize), bias: bool) -> Self {
        let mut numbers = Congruential((samples * 31 + depth * 7 + classes) as u64);
        let scale = 2.0 / (depth as f32).sqrt();
        let features = numbers.singles(samples * depth, 0.0, 2.0);
        let weights = numbers.singles(classes * depth, 0.0, scale);
        let bias = bias.then(|| numbers.singles(classes, 0.0, 1.0));
        let labels = (0..samples)
            .map(|_| ((numbers.single() + 1.0) / 2.0 * classes as f32) as u32)
            .collect();
        Self { features, weights, bias, labels, depth, classes, normalised: false }
    }

    fn normalised(mut self) -> Self {
        self.normalised = true;
        self
    }

    fn problem(&self) -> HeadProblem<'_> {
        let Self { features, weights, bias, labels, depth, classes, normalised } = self;
        let problem =
            HeadProblem::new(features, weights, bias.as_deref(), labels, *depth, *classes).unwrap();
        if *normalised { problem.with_normalised_weights() } else { problem }
    }
}

/// Softmax without a margin, through the kernels.
fn softmax(
    engine: Engine,
    case: &HeadCase,
    wanted: WantedGradients,
) -> (HeadForward, Vec<f64>, HeadGradients) {
    let problem = case.problem();
    let pass = forward(engine, &problem, true);
    let (losses, gradients) = softmax_backward(case, &problem, &pass, wanted);
    (pass, losses, gradients)
}

/// The losses and gradients of softmax without a margin, from a forward pass.
fn softmax_backward(
    case: &HeadCase,
    problem: &HeadProblem<'_>,
    pass: &HeadForward,
    wanted: WantedGradients,
) -> (Vec<f64>, HeadGradients) {
    let n = case.labels.len() as f32;
    let mut lse = Vec::new();
    let mut losses = Vec::new();
    let mut labels = Vec::new();
    for sample in &pass.samples {
        let plain = f64::from(sample.plain);
        let loss = (sample.others_lse - plain).max(0.0)
            + (-(sample.others_lse - plain).abs()).exp().ln_1p();
        losses.push(loss);
        lse.push(plain + loss);
        labels.push(LabelGradient {
            logit: ((-loss).exp() - 1.0) / f64::from(n),
            across: if case.normalised { sample.geometry.weight_norm.recip() } else { 1.0 },
            ..LabelGradient::default()
        });
    }
    let upstream = vec![1.0 / n; case.labels.len()];
    let gradients = backward(problem, pass, &upstream, &lse, &labels, wanted);
    (losses, gradients)
}

/// Softmax from its definition, in f64.
struct NaiveHead {
    losses: Vec<f64>,
    correct: Vec<bool>,
    features: Vec<f64>,
    weights: Vec<f64>,
    /// The size of the weights' gradient before the part along W, which cancels, was removed.
    weights_scale: f64,
    bias: Vec<f64>,
}

fn naive(case: &HeadCase) -> NaiveHead {
    let (n, d, k) = (case.labels.len(), case.depth, case.classes);
    let mut out = NaiveHead {
        losses: vec![],
        correct: vec![],
        features: vec![0.0; n * d],
        weights: vec![0.0; k * d],
        weights_scale: 1e-30,
        bias: vec![0.0; k],
    };
    let mut rows: Vec<f64> = case.weights.iter().map(|w| f64::from(*w)).collect();
    let norms: Vec<f64> =
        rows.chunks_exact(d).map(|w| w.iter().map(|w| w * w).sum::<f64>().sqrt()).collect();
    if case.normalised {
        for (row, norm) in rows.chunks_exact_mut(d).zip(&norms) {
            row.iter_mut().for_each(|w| *w /= norm);
        }
    }
    for i in 0..n {
        let x = &case.features[i * d..][..d];
        let z: Vec<f64> = (0..k)
            .map(|j| {
                let w = &rows[j * d..][..d];
                let dot: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum();
                dot + case.bias.as_ref().map_or(0.0, |b| f64::from(b[j]))
            })
            .collect();
        let y = case.labels[i] as usize;
        let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = z.iter().map(|z| (z - max).exp()).sum();
        out.losses.push(max + sum.ln() - z[y]);
        out.correct.push(z.iter().position(|z| *z == max) == Some(y));
        for (j, z) in z.iter().enumerate() {
            let p = (z - max).exp() / sum - if j == y { 1.0 } else { 0.0 };
            let p = p / n as f64;
            out.bias[j] += p;
            for (c, x) in x.iter().enumerate() {
                out.features[i * d + c] += p * rows[j * d + c];
                out.weights[j * d + c] += p * f64::from(*x);
            }
        }
    }
    if case.normalised {
        // The derivative of W/|W|: (I − ŵŵᵀ)/|W|.
        for ((gradient, unit), norm) in
            out.weights.chunks_exact_mut(d).zip(rows.chunks_exact(d)).zip(&norms)
        {
            out.weights_scale = out.weights_scale.max(largest(gradient) / norm);
            let along: f64 = gradient.iter().zip(unit).map(|(g, w)| g * w).sum();
            gradient.iter_mut().zip(unit).for_each(|(g, w)| *g = (*g - along * w) / norm);
        }
    }
    out
}

/// To a tolerance that is a share of the largest expected value.
fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_close_to_scale(what, found, expected, tolerance, 1e-30);
}

#[test]
fn every_path_agrees_with_the_naive_version_on_loss_and_gradients() {
    for size in SIZES {
        for (bias, normalised) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = HeadCase::new(size, bias);
            let case = if normalised { case.normalised() } else { case };
            let expected = naive(&case);
            for engine in engines() {
                let wanted = WantedGradients { bias, ..ALL };
                let (pass, losses, found) = softmax(engine, &case, wanted);
                let name = |what: &str| {
                    format!("{what} of {size:?}, bias {bias}, normalised {normalised}, {engine:?}")
                };
                // bf16 has eight significant bits: operands have a relative error of up to 2^-9.
                let tolerance = if engine.precision() == Precision::F32 { 3e-6 } else { 1.5e-2 };
                for (i, (loss, expected)) in losses.iter().zip(&expected.losses).enumerate() {
                    let error = (loss - expected).abs() / expected.abs().max(1.0);
                    assert!(error < tolerance, "{}: {loss} {expected}", name(&format!("loss {i}")));
                }
                assert_close(&name("features"), &found.features, &expected.features, tolerance);
                let scale = expected.weights_scale;
                assert_close_to_scale(
                    &name("weights"),
                    &found.weights,
                    &expected.weights,
                    tolerance,
                    scale,
                );
                if bias {
                    assert_close(&name("bias"), &found.bias, &expected.bias, tolerance);
                }
                // Normalised to one feature, all weights are ±1, and rounding decides.
                let all_tie = normalised && size.1 == 1;
                if engine.precision() == Precision::F32 && !all_tie {
                    let correct: Vec<bool> = pass.samples.iter().map(|s| s.correct).collect();
                    assert_eq!(correct, expected.correct, "{}", name("correct"));
                }
            }
        }
    }
}

#[test]
fn large_gradients_of_weights_which_are_written_past_the_caches_agree() {
    // At least 16 MB; rows that are whole cache lines, and others.
    let sizes = [(5, 512, 8200), (3, 501, 8400)];
    for (size, normalised) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        let case = HeadCase { normalised, ..HeadCase::new(size, false) };
        let expected = naive(&case);
        for engine in engines().into_iter().filter(|engine| engine.path().is_available()) {
            let (_, _, found) = softmax(engine, &case, WantedGradients { bias: false, ..ALL });
            let tolerance = if engine.precision() == Precision::F32 { 3e-6 } else { 1.5e-2 };
            let name = format!("weights of {size:?}, normalised {normalised}, {engine:?}");
            let (weights, scale) = (&expected.weights, expected.weights_scale);
            assert_close_to_scale(&name, &found.weights, weights, tolerance, scale);
        }
    }
}

#[test]
fn few_classes_of_many_samples_agree() {
    let case = HeadCase::new((900, 501, 10), true);
    let expected = naive(&case);
    for engine in engines() {
        let (_, losses, found) = softmax(engine, &case, ALL);
        let tolerance = if engine.precision() == Precision::F32 { 3e-6 } else { 1.5e-2 };
        let losses: Vec<f32> = losses.into_iter().map(|loss| loss as f32).collect();
        assert_close(&format!("losses, {engine:?}"), &losses, &expected.losses, tolerance);
        assert_close(
            &format!("features, {engine:?}"),
            &found.features,
            &expected.features,
            tolerance,
        );
        assert_close(&format!("weights, {engine:?}"), &found.weights, &expected.weights, tolerance);
        assert_close(&format!("bias, {engine:?}"), &found.bias, &expected.bias, tolerance);
    }
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    for (size, normalised) in
        [((250, 70, 1000), false), ((40, 16, 7000), true), ((1000, 501, 11), true)]
    {
        let case = HeadCase { normalised, ..HeadCase::new(size, true) };
        for engine in engines() {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| softmax(engine, &case, ALL))
            };
            let (one, one_losses, one_gradients) = run(1);
            for threads in [2, 3, 7] {
                let (many, losses, gradients) = run(threads);
                assert_eq!(one.samples, many.samples, "{size:?} {engine:?} on {threads} threads");
                assert_eq!(one_losses, losses);
                assert!(one_gradients == gradients, "{size:?} {engine:?} on {threads} threads");
            }
        }
    }
}

#[test]
fn recomputed_logits_give_the_same_bits_as_saved_ones() {
    let cases = [false, true]
        .map(|normalised| HeadCase { normalised, ..HeadCase::new((33, 64, 1500), true) });
    for (engine, case) in
        engines().into_iter().flat_map(|engine| cases.iter().map(move |case| (engine, case)))
    {
        let problem = case.problem();
        let saved = forward(engine, &problem, true);
        let recomputed = forward(engine, &problem, false);
        assert_eq!(saved.samples, recomputed.samples);
        let lse: Vec<f64> = saved.samples.iter().map(|s| s.others_lse + 1.0).collect();
        let labels = vec![LabelGradient { logit: -0.5, across: 1.0, ..Default::default() }; 33];
        let run = |pass| backward(&problem, pass, &[0.1; 33], &lse, &labels, ALL);
        assert!(run(&saved) == run(&recomputed), "{engine:?}");
    }
}

/// The engine that differs only in that it does not keep the weights in bf16.
fn without_kept_weights(engine: Engine) -> Engine {
    // SAFETY: the path is that of an engine that works.
    unsafe { Engine::assume(engine.path(), Precision::Bf16) }
}

fn keeping_engines() -> impl Iterator<Item = Engine> {
    engines().into_iter().filter(|engine| engine.precision() == Precision::Bf16Weights)
}

#[test]
fn weights_kept_in_bf16_give_the_same_bits_as_weights_rounded_in_every_pass() {
    for (size, normalised) in SIZES.into_iter().zip([false, true].into_iter().cycle()) {
        let case = HeadCase { normalised, ..HeadCase::new(size, true) };
        for engine in keeping_engines() {
            let (expected, losses, gradients) = softmax(without_kept_weights(engine), &case, ALL);
            assert!(expected.bf16_weights.is_none());
            let (made, made_losses, made_gradients) = softmax(engine, &case, ALL);
            assert_eq!((&made.samples, &made_losses), (&expected.samples, &losses), "{engine:?}");
            assert!(made_gradients == gradients, "{size:?}, {engine:?}");
            let Some(copy) = made.bf16_weights else { continue };

            // Passes that are given the copy, with saved and with recomputed logits.
            let problem = case.problem().with_bf16_weights(&copy);
            for save_logits in [true, false] {
                let given = forward(engine, &problem, save_logits);
                assert_eq!(given.samples, expected.samples, "{size:?}, {engine:?}");
                assert_eq!(given.weight_norms, expected.weight_norms);
                assert!(given.bf16_weights.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, &copy)));
                let found = softmax_backward(&case, &problem, &given, ALL).1;
                assert!(found == gradients, "{size:?}, {engine:?}, saved {save_logits}");
            }
        }
    }
}

#[test]
fn weights_kept_in_bf16_take_two_bytes_each_and_are_read_instead_of_the_f32_ones() {
    let case = HeadCase::new((33, 64, 1500), false);
    for engine in keeping_engines() {
        let made = forward(engine, &case.problem(), false);
        let copy = made.bf16_weights.expect("there are many blocks");
        let padding = if engine.path() == KernelPath::Amx { 64 } else { 0 };
        assert_eq!(copy.bytes(), 1500 * (2 * 64 + padding + 4), "{engine:?}");
        // The copy of other weights changes the logits: so it is read. The label's angle is of W itself.
        let other =
            HeadCase { weights: vec![0.0; 1500 * 64], ..HeadCase::new((33, 64, 1500), false) };
        let pass = forward(engine, &other.problem().with_bf16_weights(&copy), false);
        assert_eq!(pass.samples[0].plain, made.samples[0].plain);
        assert_eq!(pass.samples[0].geometry.dot, 0.0);
        // Another engine or another size does not use it.
        let unused =
            forward(without_kept_weights(engine), &case.problem().with_bf16_weights(&copy), false);
        assert!(unused.bf16_weights.is_none() && unused.samples == made.samples);
        let smaller = HeadCase::new((33, 64, 1499), false);
        let remade = forward(engine, &smaller.problem().with_bf16_weights(&copy), false);
        assert!(remade.bf16_weights.is_some_and(|kept| !Arc::ptr_eq(&kept, &copy)));
    }
}

#[test]
fn only_the_wanted_gradients_are_computed_and_they_are_the_same() {
    let case = HeadCase::new((33, 64, 300), true);
    let engine = Engine::new(Precision::F32).unwrap();
    let (_, _, all) = softmax(engine, &case, ALL);
    let none = WantedGradients { features: false, weights: false, bias: false };
    let only_features = softmax(engine, &case, WantedGradients { features: true, ..none }).2;
    assert_eq!(
        only_features,
        HeadGradients { features: all.features.clone(), ..Default::default() }
    );
    let only_weights = softmax(engine, &case, WantedGradients { weights: true, ..none }).2;
    assert_eq!(only_weights, HeadGradients { weights: all.weights.clone(), ..Default::default() });
    let only_bias = softmax(engine, &case, WantedGradients { bias: true, ..none }).2;
    assert_eq!(only_bias, HeadGradients { bias: all.bias, ..Default::default() });
}

#[test]
fn the_length_of_normalised_weights_does_not_matter_and_their_gradient_is_orthogonal_to_them() {
    let case = HeadCase::new((17, 33, 40), false).normalised();
    for engine in engines() {
        let (_, losses, gradients) = softmax(engine, &case, ALL);
        // Powers of two change no digit, not even in bf16.
        let mut longer = HeadCase::new((17, 33, 40), false).normalised();
        for (class, row) in longer.weights.chunks_exact_mut(33).enumerate() {
            row.iter_mut().for_each(|w| *w *= [0.25, 4.0, 1.0, 1024.0][class % 4]);
        }
        let (_, longer_losses, longer_gradients) = softmax(engine, &longer, ALL);
        for (loss, other) in losses.iter().zip(&longer_losses) {
            assert!((loss - other).abs() < 1e-5, "{engine:?}: {loss} {other}");
        }
        assert_close(
            "features",
            &longer_gradients.features,
            &gradients.features.iter().map(|g| f64::from(*g)).collect::<Vec<_>>(),
            1e-5,
        );
        for (row, weight) in gradients.weights.chunks_exact(33).zip(case.weights.chunks_exact(33)) {
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let lengths = (dot(row, row) * dot(weight, weight)).sqrt();
            assert!(dot(row, weight).abs() <= 1e-6 * lengths, "{engine:?}");
        }
    }
}

#[test]
fn a_normalised_class_of_zeros_has_the_logit_zero_and_no_gradient() {
    let mut case = HeadCase::new((9, 5, 6), false).normalised();
    case.weights[10..15].fill(0.0);
    case.labels.iter_mut().for_each(|label| *label = if *label == 2 { 3 } else { *label });
    for engine in engines() {
        let (_, losses, gradients) = softmax(engine, &case, ALL);
        assert!(losses.iter().all(|loss| loss.is_finite()));
        assert!(gradients.weights[10..15].iter().all(|g| *g == 0.0), "{engine:?}");
        assert!(gradients.features.iter().chain(&*gradients.weights).all(|g| g.is_finite()));
    }
}

#[test]
fn the_first_class_wins_a_tie_as_in_argmax() {
    // Equal weights give equal logits: only class 0 wins.
    let (features, weights) = (vec![1.0f32; 3 * 4], vec![0.5f32; 200 * 4]);
    for engine in engines() {
        let problem = HeadProblem::new(&features, &weights, None, &[0, 1, 199], 4, 200).unwrap();
        let pass = forward(engine, &problem, false);
        let correct: Vec<bool> = pass.samples.iter().map(|s| s.correct).collect();
        assert_eq!(correct, [true, false, false], "{engine:?}");
    }
}

#[test]
fn weight_norms_are_correct_where_their_squares_overflow_or_underflow_f32() {
    for (scale, samples) in [(1e-30f32, 2), (1.0, 2), (1e25, 2)] {
        let weights: Vec<f32> = [3.0, 4.0, 6.0, 8.0].iter().map(|w| w * scale).collect();
        let features = vec![0.0f32; 2 * samples];
        let problem = HeadProblem::new(&features, &weights, None, &[0, 1], 2, 2).unwrap();
        for engine in engines() {
            let (low, high) = forward(engine, &problem, false).weight_norms;
            assert!((low / scale - 5.0).abs() < 1e-5 && (high / scale - 10.0).abs() < 1e-5);
        }
    }
}

#[test]
fn the_angle_to_the_own_class_has_the_precision_of_f64() {
    for depth in [1, 7, 8, 15, 16, 17, 33, 512] {
        let case = HeadCase::new((3, depth, 5), false);
        for engine in engines() {
            let pass = forward(engine, &case.problem(), false);
            for (i, (sample, label)) in pass.samples.iter().zip(&case.labels).enumerate() {
                let (x, w) =
                    (&case.features[i * depth..], &case.weights[*label as usize * depth..]);
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    a[..depth].iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                };
                let found = sample.geometry;
                for (found, expected) in [
                    (found.dot, dot(x, w)),
                    (found.feature_norm, dot(x, x).sqrt()),
                    (found.weight_norm, dot(w, w).sqrt()),
                ] {
                    let scale = (dot(x, x) * dot(w, w)).sqrt().max(expected.abs());
                    assert!((found - expected).abs() < 1e-13 * scale, "{depth}, {engine:?}");
                }
            }
        }
    }
}

#[test]
fn a_weight_that_is_not_finite_makes_the_norms_not_finite() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut weights = vec![0.5f32; 300 * 4];
        weights[250 * 4 + 1] = bad;
        let problem = HeadProblem::new(&[1.0; 8], &weights, None, &[0, 299], 4, 300).unwrap();
        for engine in engines() {
            let (low, high) = forward(engine, &problem, false).weight_norms;
            assert!(!low.is_finite() || !high.is_finite(), "{bad} {engine:?}");
        }
    }
}

#[test]
fn wrong_sizes_and_labels_are_rejected() {
    let message = |features: &[f32], bias: Option<&[f32]>, labels: &[u32]| {
        HeadProblem::new(features, &[0.0; 6], bias, labels, 2, 3).unwrap_err().to_string()
    };
    assert_eq!(
        message(&[0.0; 4], None, &[0, 3]),
        "the label of sample 1 is 3, but there are only 3 classes (0 to 2)"
    );
    assert_eq!(message(&[0.0; 5], None, &[0, 1]), "expected 4 numbers for the features, but got 5");
    assert_eq!(
        message(&[0.0; 4], Some(&[0.0]), &[0, 1]),
        "expected 3 numbers for the bias, but got 1"
    );
    assert!(message(&[], None, &[]).starts_with("the head needs at least one sample"));
}

//! The head's kernels on every path against a naive f64 version, over awkward sizes.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx_emulator;

use lsoftmax_kernels::head::{
    Forward, Gradients, LabelGradient, Problem, Wanted, backward, forward,
};
use lsoftmax_kernels::{Engine, Path, Precision};

const ALL: Wanted = Wanted { features: true, weights: true, bias: true };

/// Sizes: samples, features, classes. One of each, primes, and around every tile's edge.
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

struct Case {
    features: Vec<f32>,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    labels: Vec<u32>,
    depth: usize,
    classes: usize,
}

/// A fixed sequence of numbers in (−1, 1), good enough to multiply.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    }

    fn vec(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.next() * scale).collect()
    }
}

impl Case {
    fn new((samples, depth, classes): (usize, usize, usize), bias: bool) -> Self {
        let mut numbers = Numbers((samples * 31 + depth * 7 + classes) as u64);
        let scale = 2.0 / (depth as f32).sqrt();
        let features = numbers.vec(samples * depth, 2.0);
        let weights = numbers.vec(classes * depth, scale);
        let bias = bias.then(|| numbers.vec(classes, 1.0));
        let labels =
            (0..samples).map(|_| ((numbers.next() + 1.0) / 2.0 * classes as f32) as u32).collect();
        Self { features, weights, bias, labels, depth, classes }
    }

    fn problem(&self) -> Problem<'_> {
        let Self { features, weights, bias, labels, depth, classes } = self;
        Problem::new(features, weights, bias.as_deref(), labels, *depth, *classes).unwrap()
    }
}

/// Plain softmax through the kernels: the label's logit is the product's own.
fn softmax(engine: Engine, case: &Case, wanted: Wanted) -> (Forward, Vec<f64>, Gradients) {
    let problem = case.problem();
    let pass = forward(engine, &problem, true);
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
            across: 1.0,
            ..LabelGradient::default()
        });
    }
    let upstream = vec![1.0 / n; case.labels.len()];
    let gradients = backward(&problem, &pass, &upstream, &lse, &labels, wanted);
    (pass, losses, gradients)
}

/// The same from the definition, in f64.
struct Naive {
    losses: Vec<f64>,
    correct: Vec<bool>,
    features: Vec<f64>,
    weights: Vec<f64>,
    bias: Vec<f64>,
}

fn naive(case: &Case) -> Naive {
    let (n, d, k) = (case.labels.len(), case.depth, case.classes);
    let mut out = Naive {
        losses: vec![],
        correct: vec![],
        features: vec![0.0; n * d],
        weights: vec![0.0; k * d],
        bias: vec![0.0; k],
    };
    for i in 0..n {
        let x = &case.features[i * d..][..d];
        let z: Vec<f64> = (0..k)
            .map(|j| {
                let w = &case.weights[j * d..][..d];
                let dot: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
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
                out.features[i * d + c] += p * f64::from(case.weights[j * d + c]);
                out.weights[j * d + c] += p * f64::from(*x);
            }
        }
    }
    out
}

fn assert_close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*f) - e).abs() / scale;
        assert!(
            error <= tolerance,
            "{what}[{i}]: {f} but should be {e} (error {error:e} of the largest)"
        );
    }
}

fn engines() -> Vec<Engine> {
    let mut engines = Vec::new();
    for precision in [Precision::F32, Precision::Bf16] {
        for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
            let engine = Engine::at_most(path, precision).unwrap();
            if engine.path() == path {
                engines.push(engine);
            }
        }
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if !Path::Amx.is_available() && Path::Avx512Bf16.is_available() {
        amx_emulator::install();
        // SAFETY: the emulator has just been installed, and AVX-512 BF16 is there.
        engines.push(unsafe { Engine::assume(Path::Amx, Precision::Bf16) });
    }
    engines
}

#[test]
fn every_path_agrees_with_the_naive_version_on_loss_and_gradients() {
    for size in SIZES {
        for bias in [false, true] {
            let case = Case::new(size, bias);
            let expected = naive(&case);
            for engine in engines() {
                let wanted = Wanted { bias, ..ALL };
                let (pass, losses, found) = softmax(engine, &case, wanted);
                let name = |what: &str| format!("{what} of {size:?}, bias {bias}, {engine:?}");
                // bf16 keeps eight bits: operands are off by up to 2^-9 of themselves.
                let tolerance = if engine.precision() == Precision::F32 { 3e-6 } else { 1.5e-2 };
                for (i, (loss, expected)) in losses.iter().zip(&expected.losses).enumerate() {
                    let error = (loss - expected).abs() / expected.abs().max(1.0);
                    assert!(error < tolerance, "{}: {loss} {expected}", name(&format!("loss {i}")));
                }
                assert_close(&name("features"), &found.features, &expected.features, tolerance);
                assert_close(&name("weights"), &found.weights, &expected.weights, tolerance);
                if bias {
                    assert_close(&name("bias"), &found.bias, &expected.bias, tolerance);
                }
                if engine.precision() == Precision::F32 {
                    let correct: Vec<bool> = pass.samples.iter().map(|s| s.correct).collect();
                    assert_eq!(correct, expected.correct, "{}", name("correct"));
                }
            }
        }
    }
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    for size in [(250, 70, 1000), (40, 16, 7000)] {
        let case = Case::new(size, true);
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
fn logits_that_were_not_kept_are_computed_again_to_the_same_bits() {
    let case = Case::new((33, 64, 1500), true);
    let problem = case.problem();
    for engine in engines() {
        let kept = forward(engine, &problem, true);
        let dropped = forward(engine, &problem, false);
        assert_eq!(kept.samples, dropped.samples);
        let lse: Vec<f64> = kept.samples.iter().map(|s| s.others_lse + 1.0).collect();
        let labels = vec![LabelGradient { logit: -0.5, across: 1.0, ..Default::default() }; 33];
        let run = |pass| backward(&problem, pass, &[0.1; 33], &lse, &labels, ALL);
        assert!(run(&kept) == run(&dropped), "{engine:?}");
    }
}

#[test]
fn only_the_wanted_gradients_are_computed_and_they_are_the_same() {
    let case = Case::new((33, 64, 300), true);
    let engine = Engine::new(Precision::F32).unwrap();
    let (_, _, all) = softmax(engine, &case, ALL);
    let none = Wanted { features: false, weights: false, bias: false };
    let only_features = softmax(engine, &case, Wanted { features: true, ..none }).2;
    assert_eq!(only_features, Gradients { features: all.features.clone(), ..Default::default() });
    let only_weights = softmax(engine, &case, Wanted { weights: true, ..none }).2;
    assert_eq!(only_weights, Gradients { weights: all.weights.clone(), ..Default::default() });
    let only_bias = softmax(engine, &case, Wanted { bias: true, ..none }).2;
    assert_eq!(only_bias, Gradients { bias: all.bias, ..Default::default() });
}

#[test]
fn a_tie_goes_to_the_first_class_as_argmax_has_it() {
    // Equal weights give equal logits: only class 0 wins.
    let (features, weights) = (vec![1.0f32; 3 * 4], vec![0.5f32; 200 * 4]);
    for engine in engines() {
        let problem = Problem::new(&features, &weights, None, &[0, 1, 199], 4, 200).unwrap();
        let pass = forward(engine, &problem, false);
        let correct: Vec<bool> = pass.samples.iter().map(|s| s.correct).collect();
        assert_eq!(correct, [true, false, false], "{engine:?}");
    }
}

#[test]
fn weight_norms_are_right_where_their_squares_leave_f32() {
    for (scale, samples) in [(1e-30f32, 2), (1.0, 2), (1e25, 2)] {
        let weights: Vec<f32> = [3.0, 4.0, 6.0, 8.0].iter().map(|w| w * scale).collect();
        let features = vec![0.0f32; 2 * samples];
        let problem = Problem::new(&features, &weights, None, &[0, 1], 2, 2).unwrap();
        for engine in engines() {
            let (low, high) = forward(engine, &problem, false).weight_norms;
            assert!((low / scale - 5.0).abs() < 1e-5 && (high / scale - 10.0).abs() < 1e-5);
        }
    }
}

#[test]
fn a_weight_that_is_not_finite_shows_in_the_norms() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut weights = vec![0.5f32; 300 * 4];
        weights[250 * 4 + 1] = bad;
        let problem = Problem::new(&[1.0; 8], &weights, None, &[0, 299], 4, 300).unwrap();
        for engine in engines() {
            let (low, high) = forward(engine, &problem, false).weight_norms;
            assert!(!low.is_finite() || !high.is_finite(), "{bad} {engine:?}");
        }
    }
}

#[test]
fn wrong_sizes_and_labels_are_told() {
    let told = |features: &[f32], bias: Option<&[f32]>, labels: &[u32]| {
        Problem::new(features, &[0.0; 6], bias, labels, 2, 3).unwrap_err().to_string()
    };
    assert_eq!(
        told(&[0.0; 4], None, &[0, 3]),
        "the label of sample 1 is 3, but there are only 3 classes (0 to 2)"
    );
    assert_eq!(told(&[0.0; 5], None, &[0, 1]), "the features must hold 4 numbers but holds 5");
    assert_eq!(told(&[0.0; 4], Some(&[0.0]), &[0, 1]), "the bias must hold 3 numbers but holds 1");
    assert!(told(&[], None, &[]).starts_with("the head needs at least one sample"));
}

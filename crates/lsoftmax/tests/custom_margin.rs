//! Margins other than the paper's: one implementation, fused and composed.

mod support;

use burn::module::Module;
use burn::tensor::Device;
use lsoftmax::{AngularMargin, LSoftmax, Number};
use support::way::values;
use support::{Batch, Setup, Way, assert_close};

/// ψ(θ) = cos θ − m, as in CosFace.
#[derive(Clone, Debug)]
struct Shifted(f64);

impl AngularMargin for Shifted {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        (cos.clone() - self.0, cos.constant(1.0))
    }
}

/// ψ(θ) = cos(θ + m), as in ArcFace, in two intervals: where θ + m is below π, and beyond.
#[derive(Clone, Debug)]
struct Additive(f64);

impl AngularMargin for Additive {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        let theta = cos.clone().acos();
        let widened = theta.clone() + self.0;
        let sine = theta.sin().clamp(cos.smallest_sine(), 1.0);
        (widened.clone().cos(), widened.sin() / sine)
    }

    fn intervals(&self) -> usize {
        2
    }

    fn interval(&self, cos: f64) -> usize {
        usize::from(cos.acos() + self.0 > std::f64::consts::PI)
    }
}

/// The losses, and the gradients of features and weights.
fn run(way: Way, batch: &Batch, margin: impl AngularMargin) -> [Vec<f64>; 3] {
    let setup = Setup::new(way, batch);
    let head = setup.head.with_margin(margin);
    let output = head.forward(setup.features.clone(), setup.labels, setup.lambda).unwrap();
    let gradients = output.loss.backward();
    let weights = head.weight.val().grad(&gradients).unwrap();
    [values(output.losses), values(setup.features.grad(&gradients).unwrap()), values(weights)]
}

fn batch() -> Batch {
    Batch::random(71, 9, 6, 5).with_bias(true).with_lambda(0.5)
}

fn check(name: &str, margin: impl AngularMargin) {
    let [fused, composed, exact] =
        [Way::Fused, Way::Composed, Way::ComposedF64].map(|way| run(way, &batch(), margin.clone()));
    for (part, what) in ["losses", "features", "weights"].into_iter().enumerate() {
        assert_close(&format!("{name}, {what}, fused"), &fused[part], &exact[part], 1e-5);
        assert_close(&format!("{name}, {what}, composed"), &composed[part], &exact[part], 1e-5);
    }
}

#[test]
fn a_custom_margin_gives_the_same_loss_fused_and_composed() {
    check("shifted", Shifted(0.35));
    check("additive", Additive(0.5));
}

/// Against one other class of zero weights the loss is ln(1 + e^−f) with f = |W||x| ψ.
#[test]
fn a_custom_margin_follows_its_formula() {
    let (theta, m) = (0.7f64, 0.35);
    let batch = Batch::new(&[&[theta.cos(), theta.sin()]], &[&[1.0, 0.0], &[0.0, 0.0]], &[0]);
    for way in [Way::Fused, Way::Composed, Way::ComposedF64] {
        for (found, psi) in [
            (run(way, &batch, Shifted(m)), theta.cos() - m),
            (run(way, &batch, Additive(m)), (theta + m).cos()),
        ] {
            assert_close(&format!("{way:?}"), &found[0], &[(-psi).exp().ln_1p()], 1e-6);
        }
    }
}

#[test]
fn a_report_counts_the_intervals_of_the_margin() {
    let angles = [0.3, 1.0, 2.0, 2.9, 3.0];
    let batch = Batch::at_angles(72, &angles, 4, 3, 1.0);
    for way in [Way::Fused, Way::Composed] {
        let setup = Setup::new(way, &batch);
        let forward = |setup: Setup, margin: Additive| {
            let head: LSoftmax<Additive> = setup.head.with_margin(margin);
            head.forward(setup.features, setup.labels, 0.0).unwrap().report().unwrap()
        };
        let report = forward(setup, Additive(0.5));
        assert_eq!((report.samples, report.k), (5, vec![3, 2]));
        assert_eq!(report.margin.0, 0.5);
    }
}

#[test]
fn a_head_with_a_custom_margin_is_a_module() {
    let setup = Setup::on(&Device::flex().autodiff(), Way::Fused, &batch());
    let head = setup.head.with_margin(Shifted(0.2));
    assert_eq!(head.num_params(), 5 * 6 + 5);
    assert_eq!(head.valid().margin.0, 0.2);
    assert_eq!(head.clone().no_grad().margin.0, 0.2);
}

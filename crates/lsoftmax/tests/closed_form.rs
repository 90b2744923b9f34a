//! The decision boundaries of two classes of equal norm, which are known in closed form.
//!
//! With an angle of θ₁₂ between the weights and a feature between them at θ from its own class, the label
//! wins as long as cos mθ > cos(θ₁₂ − θ), that is, up to θ = θ₁₂/(m + 1). The gap between both boundaries
//! is (m − 1)/(m + 1) θ₁₂. The tests find these angles with the head's loss, gradient and report.

mod support;

use std::f64::consts::LN_2;

use support::way::values;
use support::{Batch, Run, Setup, Way, definition};

const MARGINS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 2.5];
const ANGLES: [f64; 4] = [0.4, 1.0, 1.9, 2.6];

/// The tolerance of an angle: the error of the loss, 1e-7·|W||x|, over its slope of about |W||x|.
const WAYS: [(Way, f64); 3] =
    [(Way::Fused, 1e-5), (Way::Composed, 1e-5), (Way::ComposedF64, 1e-10)];

fn at(angle: f64, length: f64) -> [f64; 2] {
    [length * angle.cos(), length * angle.sin()]
}

/// Two classes θ₁₂ apart, and features of the given label between them.
///
/// The numbers are not rounded to f32, since in f64 the boundary is checked to ten digits.
fn between(margin: f64, apart: f64, label: usize, from_own: &[f64]) -> Batch {
    let angle = |own: &f64| if label == 0 { *own } else { apart - own };
    Batch {
        margin,
        lambda: 0.0,
        depth: 2,
        classes: 2,
        labels: vec![label; from_own.len()],
        features: from_own.iter().flat_map(|own| at(angle(own), 3.0)).collect(),
        weights: [at(0.0, 2.0), at(apart, 2.0)].concat(),
        bias: None,
    }
}

/// The loss, and its derivative with respect to the angle to the own class.
fn loss_and_slope(way: Way, margin: f64, apart: f64, label: usize, own: f64) -> (f64, f64) {
    let batch = between(margin, apart, label, &[own]);
    let run = Run::new(way, &batch);
    let x = batch.feature(0);
    let across = if label == 0 { [-x[1], x[0]] } else { [x[1], -x[0]] };
    let slope = run.gradients.features.iter().zip(across).map(|(g, a)| g * a).sum();
    (run.loss, slope)
}

/// The angle at which both logits are equal, so that the loss is ln 2, by bisection between two angles.
fn bisected(way: Way, margin: f64, apart: f64, label: usize, halvings: usize) -> f64 {
    let (mut inside, mut outside) = (0.0, apart);
    for _ in 0..halvings {
        let middle = (inside + outside) / 2.0;
        let (loss, _) = loss_and_slope(way, margin, apart, label, middle);
        if loss < LN_2 { inside = middle } else { outside = middle }
    }
    (inside + outside) / 2.0
}

fn by_loss(way: Way, margin: f64, apart: f64, label: usize) -> f64 {
    bisected(way, margin, apart, label, 50)
}

/// The same with the head's gradient, by Newton's method from a nearby angle.
fn by_gradient(way: Way, margin: f64, apart: f64, label: usize) -> f64 {
    (0..10).fold(bisected(way, margin, apart, label, 4), |own, _| {
        let (loss, slope) = loss_and_slope(way, margin, apart, label, own);
        own - (loss - LN_2) / slope
    })
}

#[test]
fn the_angular_margin_has_its_closed_form() {
    for (margin, apart) in MARGINS.into_iter().flat_map(|m| ANGLES.map(|apart| (m, apart))) {
        let expected = (margin - 1.0) / (margin + 1.0) * apart;
        for (way, tolerance) in WAYS {
            for boundary in [by_loss, by_gradient] {
                let found =
                    apart - boundary(way, margin, apart, 0) - boundary(way, margin, apart, 1);
                let error = (found - expected).abs();
                assert!(
                    error <= tolerance,
                    "m = {margin}, θ₁₂ = {apart} ({way:?}): {found} and not {expected}"
                );
            }
        }
    }
}

/// At the boundary p = ½ and mθ = θ₂, so the loss rises by ½|W||x| (m sin mθ + sin θ₂).
#[test]
fn the_slope_of_the_loss_at_the_boundary_has_its_closed_form() {
    for (margin, apart) in MARGINS.into_iter().flat_map(|m| ANGLES.map(|apart| (m, apart))) {
        let boundary = apart / (margin + 1.0);
        let expected = 0.5 * 6.0 * (margin + 1.0) * (apart - boundary).sin();
        for (way, tolerance) in WAYS {
            for label in [0, 1] {
                let (loss, slope) = loss_and_slope(way, margin, apart, label, boundary);
                assert!((loss - LN_2).abs() <= 10.0 * tolerance, "{way:?}: {loss}");
                assert!(
                    (slope - expected).abs() <= 10.0 * tolerance,
                    "{way:?}: {slope}, {expected}"
                );
            }
        }
    }
}

/// The report counts a sample as inside the margin on one side of a boundary only, and as classified
/// correctly up to the middle.
#[test]
fn the_report_has_the_same_boundaries() {
    let steps: Vec<f64> = (0..200).map(|i| (f64::from(i) + 0.5) / 200.0).collect();
    for (margin, apart) in MARGINS.into_iter().flat_map(|m| ANGLES.map(|apart| (m, apart))) {
        let from_own: Vec<f64> = steps.iter().map(|step| step * apart).collect();
        let share = |boundary: f64| {
            from_own.iter().filter(|own| **own < boundary).count() as f64 / from_own.len() as f64
        };
        for label in [0, 1] {
            let batch = between(margin, apart, label, &from_own);
            for way in [Way::Fused, Way::Composed, Way::ComposedF64] {
                let report = Setup::new(way, &batch).output().report().unwrap();
                assert_eq!(report.accuracy, share(apart / 2.0), "{way:?}");
                let inside = 1.0 - share(apart / (margin + 1.0));
                assert!((report.inside_margin - inside).abs() < 1e-12, "m = {margin} ({way:?})");
            }
        }
    }
}

/// Gradient descent on the angle leads from anywhere between the classes to the sample's own class.
#[test]
fn a_feature_turns_towards_its_class_and_past_the_boundary() {
    for margin in MARGINS {
        let apart = 1.9;
        let mut own = 0.9 * apart;
        for _ in 0..300 {
            own -= 0.02 * loss_and_slope(Way::Fused, margin, apart, 0, own).1;
        }
        assert!(own.abs() < 0.5 * apart / (margin + 1.0), "m = {margin}: {own}");
    }
}

/// Classes of other norms have other boundaries: |W₁| cos mθ = |W₂| cos(θ₁₂ − θ).
#[test]
fn the_class_with_the_larger_norm_has_the_wider_angle() {
    let boundary = |first: f64, second: f64| {
        let mut low = 0.0;
        let mut high = 1.2;
        for _ in 0..50 {
            let own: f64 = (low + high) / 2.0;
            let mut batch = between(2.0, 1.2, 0, &[own]);
            batch.weights = [at(0.0, first), at(1.2, second)].concat();
            let losses = values(Setup::new(Way::ComposedF64, &batch).output().losses);
            assert!((losses[0] - definition::losses(&batch)[0]).abs() < 1e-10);
            if losses[0] < LN_2 { low = own } else { high = own }
        }
        assert!((first * (2.0 * low).cos() - second * (1.2 - low).cos()).abs() < 1e-9);
        low
    };
    assert!(boundary(2.0, 1.0) > boundary(1.0, 1.0));
    assert!(boundary(1.0, 1.0) > boundary(1.0, 2.0));
}

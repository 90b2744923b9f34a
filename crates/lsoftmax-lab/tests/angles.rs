//! Angles against closed forms.

use lsoftmax_lab::figures::{ClassAngles, Embedding, FigureError};

/// A vector of the plane at an angle in degrees.
fn at(degrees: f64, norm: f64) -> [f32; 2] {
    let (sin, cos) = degrees.to_radians().sin_cos();
    [(norm * cos) as f32, (norm * sin) as f32]
}

/// The angles of samples (class, degrees) and of weights, in the plane. Norms are all different.
fn measure(samples: &[(u32, f64)], weights: &[f64]) -> Result<ClassAngles, FigureError> {
    let norm = |index: usize| 0.5 + index as f64;
    let features: Vec<f32> =
        samples.iter().enumerate().flat_map(|(i, sample)| at(sample.1, norm(i))).collect();
    let weights: Vec<f32> =
        weights.iter().enumerate().flat_map(|(i, angle)| at(*angle, norm(i))).collect();
    let labels: Vec<u32> = samples.iter().map(|sample| sample.0).collect();
    ClassAngles::of(&Embedding::new(&features, &labels, &weights, 2)?)
}

/// f32 vectors are off by 1e-7 or so, times 57.
#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 2e-5, "{found} should be {expected}");
}

#[test]
fn samples_at_both_sides_of_two_classes_have_their_closed_form() {
    for (between, side) in [(90.0, 10.0), (120.0, 1.0), (40.0, 15.0), (30.0, 0.0)] {
        let samples = [(0, side), (0, -side), (1, between + side), (1, between - side)];
        let angles = measure(&samples, &[0.0, between]).unwrap();
        assert_close(angles.own, side);
        assert_close(angles.spread, side);
        // Towards the other class it is between − side away, on the other side between + side.
        assert_close(angles.margin, between - side);
        assert_close(angles.gap, between - 2.0 * side);
    }
}

#[test]
fn classes_that_fill_what_the_margin_leaves_have_the_papers_gap() {
    // m θ must stay below θ₁₂ − θ, so a class reaches θ₁₂ / (m + 1) to each side.
    let between = 70.0;
    for m in 1..=4 {
        let reach = between / f64::from(m + 1);
        let samples = [(0, reach), (0, -reach), (1, between + reach), (1, between - reach)];
        let gap = measure(&samples, &[0.0, between]).unwrap().gap;
        assert_close(gap, f64::from(m - 1) / f64::from(m + 1) * between);
    }
}

#[test]
fn the_gap_leaves_out_one_sample_in_twenty() {
    let mut samples: Vec<(u32, f64)> =
        (0..38).map(|i| (0, if i % 2 == 0 { 5.0 } else { -5.0 })).collect();
    samples.extend([(0, 40.0), (0, -40.0), (1, 100.0)]);
    assert_close(measure(&samples, &[0.0, 100.0]).unwrap().gap, 95.0);
    samples.extend([(0, 30.0), (0, -30.0)]); // 4 of 42 are further now, and 2.1 may be
    assert_close(measure(&samples, &[0.0, 100.0]).unwrap().gap, 70.0);
}

#[test]
fn the_gap_is_to_the_nearest_class() {
    let angles = measure(&[(0, 0.0), (1, 50.0), (2, 170.0)], &[0.0, 50.0, 170.0]).unwrap();
    assert_close(angles.gap, (50.0 + 50.0 + 120.0) / 3.0);
    assert_close(angles.margin, (50.0 + 50.0 + 120.0) / 3.0);
}

#[test]
fn a_sample_closer_to_another_class_has_a_negative_margin() {
    let angles = measure(&[(0, 60.0), (1, 90.0)], &[0.0, 90.0]).unwrap();
    assert_close(angles.margin, ((30.0 - 60.0) + 90.0) / 2.0);
}

#[test]
fn a_class_without_samples_counts_by_its_weights_alone() {
    let angles = measure(&[(0, 0.0), (2, 90.0)], &[0.0, 30.0, 90.0]).unwrap();
    assert_close(angles.margin, (30.0 + 60.0) / 2.0);
    assert_close(angles.gap, 90.0);
    assert_close(angles.spread, 0.0);
}

#[test]
fn the_plane_may_lie_anywhere_in_a_larger_space() {
    let samples: [(u32, f64); 6] =
        [(0, 3.0), (0, -11.0), (1, 80.0), (1, 95.0), (2, 200.0), (2, 230.0)];
    let weights = [0.0, 85.0, 210.0];
    let flat = measure(&samples, &weights).unwrap();
    let across = [2.0, -1.0, 0.0, 2.0, 0.0].map(|value: f64| value / 3.0);
    let up = [1.0, 0.0, 2.0, -1.0, -1.0].map(|value: f64| value / 7f64.sqrt());
    let lift = |degrees: f64, norm: f64| {
        let (sin, cos) = degrees.to_radians().sin_cos();
        (0..5).map(move |axis| (norm * (cos * across[axis] + sin * up[axis])) as f32)
    };
    let features: Vec<f32> = samples.iter().flat_map(|sample| lift(sample.1, 1e-15)).collect();
    let weights: Vec<f32> = weights.iter().flat_map(|angle| lift(*angle, 1e15)).collect();
    let labels = samples.map(|sample| sample.0);
    let lifted =
        ClassAngles::of(&Embedding::new(&features, &labels, &weights, 5).unwrap()).unwrap();
    assert_close(lifted.own, flat.own);
    assert_close(lifted.spread, flat.spread);
    assert_close(lifted.margin, flat.margin);
    assert_close(lifted.gap, flat.gap);
}

#[test]
fn angles_near_0_and_180_degrees_are_exact() {
    let tiny = 2f32.powi(-40); // its cosine is 1 in f64
    let features = [1.0, tiny, -1.0, 0.0];
    let angles =
        ClassAngles::of(&Embedding::new(&features, &[0, 1], &[1.0, 0.0, 1.0, 0.0], 2).unwrap())
            .unwrap();
    let expected = (f64::from(tiny).to_degrees() + 180.0) / 2.0;
    assert!((angles.own - expected).abs() < 1e-13, "{} should be {expected}", angles.own);
}

#[test]
fn a_zero_vector_is_at_90_degrees_to_everything() {
    let features = [0.0, 0.0, 0.0, 1.0]; // the second sample is on its class, and 90° from the other
    let angles =
        ClassAngles::of(&Embedding::new(&features, &[0, 1], &[0.0, 0.0, 0.0, 2.0], 2).unwrap())
            .unwrap();
    assert_eq!((angles.own, angles.spread, angles.margin), (45.0, 45.0, 45.0));
}

#[test]
fn what_has_no_angles_is_an_error_that_says_so() {
    let check = |result: Result<ClassAngles, FigureError>, expected: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    let of = |features: &[f32], labels: &[u32], weights: &[f32], columns| {
        ClassAngles::of(&Embedding::new(features, labels, weights, columns)?)
    };
    check(measure(&[(1, 0.0), (1, 5.0)], &[0.0, 90.0]), "at least two");
    check(measure(&[(0, 0.0)], &[0.0]), "at least two");
    check(of(&[], &[], &[1.0, 2.0], 2), "no samples");
    check(of(&[1.0], &[0], &[], 1), "no classes");
    check(of(&[1.0], &[0], &[1.0], 0), "no columns");
    check(of(&[1.0, 2.0, 3.0], &[0], &[1.0, 2.0], 2), "features are 3 numbers");
    check(of(&[1.0, 2.0], &[0], &[1.0, 2.0, 3.0], 2), "weights are 3 numbers");
    check(of(&[1.0, 2.0], &[7], &[1.0, 2.0], 2), "label 7");
    check(of(&[1.0, f32::NAN], &[0], &[1.0, 2.0], 2), "NaN in row 0, column 1");
    check(of(&[1.0], &[0], &[1.0], usize::MAX), "numbers");
}

//! Figure 4: the geometry of two classes, against its closed form, and its picture.

mod picture;

use lsoftmax::Margin;
use lsoftmax_lab::figures::{BoundaryPanel, decision_boundaries};
use lsoftmax_lab::two_classes::{LOSS, NORM, TwoClasses, TwoClassesError, boundaries};
use picture::{all, read};

const RATIOS: [f64; 3] = [1.0, 1.7, 1.0 / 1.7];

fn margin(m: f64) -> Margin {
    Margin::new(m).unwrap()
}

fn norm([x, y]: [f64; 2]) -> f64 {
    x.hypot(y)
}

#[test]
fn equal_norms_have_the_margin_of_the_closed_form() {
    for m in [1.0, 1.5, 2.0, 3.0, 4.0, 7.0] {
        for degrees in [10.0f64, 60.0, 90.0, 150.0, 179.0] {
            for start in [0.0f64, 100.0, 200.0, 300.0] {
                let weight =
                    |angle: f64| [3.0 * angle.to_radians().cos(), 3.0 * angle.to_radians().sin()];
                for weights in [
                    [weight(start), weight(start + degrees)],
                    [weight(start + degrees), weight(start)],
                ] {
                    let [first, second] = boundaries(margin(m), weights).unwrap();
                    let found = (first - second).abs().to_degrees();
                    let found = found.min(360.0 - found);
                    let expected = (m - 1.0) / (m + 1.0) * degrees;
                    assert!((found - expected).abs() < 1e-6, "m = {m}, {degrees}°: {found}");
                }
            }
        }
    }
}

#[test]
fn boundaries_are_where_both_logits_are_equal() {
    for m in [1.0, 2.0, 3.0] {
        for ratio in RATIOS {
            let classes = TwoClasses::train(margin(m), ratio).unwrap();
            let weights = classes.weights();
            for (class, boundary) in classes.boundaries().into_iter().enumerate() {
                let cos = |w: [f64; 2]| (w[0] * boundary.cos() + w[1] * boundary.sin()) / norm(w);
                let (own, other) = (weights[class], weights[1 - class]);
                let own_logit = norm(own) * margin(m).psi(cos(own)).value;
                assert!((own_logit - norm(other) * cos(other)).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn the_optimisation_ends_at_one_loss_with_the_given_norms() {
    for m in [1.0, 2.0, 3.0, 4.0] {
        for ratio in RATIOS {
            let classes = TwoClasses::train(margin(m), ratio).unwrap();
            assert!(classes.loss() <= LOSS && classes.loss() > 0.98 * LOSS, "{}", classes.loss());
            let [first, second] = classes.weights().map(norm);
            assert!((first / second - ratio).abs() < 1e-12);
            assert!((first * second - NORM * NORM).abs() < 1e-9);
            let features = [0, 1].map(|class| classes.features(class)).concat();
            assert!(features.iter().all(|feature| norm(*feature) <= 1.0 + 1e-12));
        }
    }
}

#[test]
fn features_learnt_with_a_margin_keep_to_their_side_of_it_and_are_nearer_to_their_class() {
    let widest = |classes: &TwoClasses| {
        let angle = |[x, y]: [f64; 2]| y.atan2(x);
        let own = angle(classes.weights()[0]);
        let angles = classes.features(0).iter().map(|feature| (angle(*feature) - own).abs());
        angles.fold(0.0, f64::max)
    };
    for ratio in RATIOS {
        let [softmax, large] = [1.0, 2.0].map(|m| TwoClasses::train(margin(m), ratio).unwrap());
        assert!(softmax.angular_margin() == 0.0);
        assert!(large.angular_margin() > 10.0);
        assert!(widest(&large) < widest(&softmax), "ratio {ratio}");
        // W1 is left of W2, so class 1 is on the left of its boundary.
        let [left, right] = large.boundaries();
        assert!(left > right);
        assert!(large.features(0).iter().all(|[x, y]| y.atan2(*x) > left));
        assert!(large.features(1).iter().all(|[x, y]| y.atan2(*x) < right));
    }
}

#[test]
fn the_class_with_larger_weights_has_more_room() {
    let angles = |ratio: f64| {
        let classes = TwoClasses::train(margin(2.0), ratio).unwrap();
        let [first, second] = classes.weights().map(|[x, y]| y.atan2(x));
        let [left, right] = classes.boundaries();
        (first - left, right - second)
    };
    let ((first, second), (mirrored_first, mirrored_second)) = (angles(1.7), angles(1.0 / 1.7));
    assert!(first > second && mirrored_first < mirrored_second);
}

#[test]
fn ratios_out_of_range_are_errors() {
    for ratio in [0.0, -1.0, 3.0, f64::NAN, f64::INFINITY] {
        let error = TwoClasses::train(margin(2.0), ratio).unwrap_err();
        assert!(matches!(error, TwoClassesError::Ratio(_)), "{error}");
    }
}

#[test]
fn the_picture_shows_every_panel_with_its_margin() {
    let panels = BoundaryPanel::softmax_and(margin(2.0)).unwrap();
    let picture = decision_boundaries(&panels).unwrap();
    let document = read(picture.as_str());
    let texts: Vec<String> = all(&document, "text").iter().map(picture::text).collect();
    assert!(texts.contains(&"L-Softmax (m = 2), |W1| > |W2|".into()), "{texts:?}");
    for panel in &panels {
        assert!(texts.contains(&panel.title.replace('₁', "1").replace('₂', "2")));
        let angle = format!("{:.1}°", panel.classes.angular_margin());
        assert_eq!(texts.contains(&angle), panel.classes.margin() != Margin::ONE, "{angle}");
    }
    assert_eq!(decision_boundaries(&panels).unwrap(), picture);
    assert!(decision_boundaries(&[]).unwrap_err().to_string().contains("no panels"));
    let hostile = BoundaryPanel { title: "</text><script>".repeat(30), ..panels[0].clone() };
    assert!(!decision_boundaries(&[hostile]).unwrap().as_str().contains("<script"));
}

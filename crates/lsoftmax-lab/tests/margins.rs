//! The margins of heads in angles.

use lsoftmax_lab::figures::{angular_margin, margins};
use lsoftmax_lab::head::{HeadKind, HeadSettings};

fn head(kind: HeadKind, margin: Option<f64>) -> HeadSettings {
    HeadSettings::new(kind, margin, None).unwrap()
}

#[test]
fn angular_margins_of_two_classes_at_90_degrees_have_their_closed_forms() {
    for m in [1.0, 2.0, 3.0, 4.0, 2.5] {
        // The paper's (m − 1) / (m + 1) θ₁₂.
        let expected = (m - 1.0) / (m + 1.0) * 90.0;
        for kind in [HeadKind::LSoftmax, HeadKind::ASoftmax] {
            assert!((angular_margin(head(kind, Some(m))) - expected).abs() < 1e-9, "{kind}, {m}");
        }
    }
    for m in [0.0, 0.2, 0.5] {
        // θ + m = 90° − θ.
        let found = angular_margin(head(HeadKind::ArcFace, Some(m)));
        assert!((found - m.to_degrees()).abs() < 1e-9, "{m}: {found}");
    }
    for m in [0.0, 0.1, 0.35] {
        // cos θ − sin θ = √2 cos(θ + 45°) = m.
        let theta = (m / 2f64.sqrt()).acos().to_degrees() - 45.0;
        let found = angular_margin(head(HeadKind::CosFace, Some(m)));
        assert!((found - (90.0 - 2.0 * theta)).abs() < 1e-9, "{m}: {found}");
    }
    assert!(angular_margin(head(HeadKind::NormSoftmax, None)).abs() < 1e-9);
}

#[test]
fn the_picture_has_a_panel_and_a_margin_for_each_head() {
    let heads = [
        head(HeadKind::Softmax, None),
        head(HeadKind::LSoftmax, Some(4.0)),
        head(HeadKind::CosFace, Some(0.35)),
        head(HeadKind::ArcFace, Some(0.5)),
    ];
    let picture = margins(&heads).unwrap();
    for head in heads {
        assert!(picture.as_str().contains(&head.to_string()), "{head}");
        let margin = format!(">{:.1}°<", angular_margin(head).abs());
        assert!(picture.as_str().contains(&margin), "{head}: {margin}");
    }
    assert!(margins(&[]).is_err());
}

//! Comparisons that report what differs, where and by how much.

pub use lsoftmax_testing::{assert_close, largest};

use super::Gradients;

/// Fails if a gradient differs by more than `tolerance` times the largest entry of its tensor.
pub fn assert_gradients_close(what: &str, found: &Gradients, expected: &Gradients, tolerance: f64) {
    for ((part, found), (_, expected)) in found.parts().into_iter().zip(expected.parts()) {
        let tolerance = tolerance * largest(expected);
        assert_close(&format!("{what}, gradient of the {part}"), found, expected, tolerance);
    }
}

/// Fails if two lists are not bit-identical, except for the sign of zeros.
pub fn assert_same_bits(what: &str, found: &[f64], expected: &[f64]) {
    assert!(found == expected, "{what}: {found:?} and not {expected:?}");
}

/// Fails at the first gradient that is NaN or infinite.
pub fn assert_finite(what: &str, gradients: &Gradients) {
    for (part, values) in gradients.parts() {
        let bad = values.iter().find(|value| !value.is_finite());
        assert_eq!(bad, None, "{what}: gradient of the {part}");
    }
}

//! Comparisons that say what differs, where and by how much.

use super::Gradients;

/// What an error is measured against.
pub trait Largest {
    /// The largest absolute value.
    fn largest(&self) -> f64;
}

impl Largest for [f64] {
    fn largest(&self) -> f64 {
        self.iter().fold(0.0, |largest, value| largest.max(value.abs()))
    }
}

/// Fails where two numbers differ by more than `tolerance`, an absolute one.
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: another number of entries");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let error = (f - e).abs();
        assert!(
            error <= tolerance,
            "{what}[{i}] is {f} and not {e}: off by {error:e} > {tolerance:e}"
        );
    }
}

/// Fails where a gradient is off by more than `tolerance` times the largest entry of its part.
pub fn assert_gradients_close(what: &str, found: &Gradients, expected: &Gradients, tolerance: f64) {
    for ((part, found), (_, expected)) in found.parts().into_iter().zip(expected.parts()) {
        let tolerance = tolerance * expected.largest();
        assert_close(&format!("{what}, gradient of the {part}"), found, expected, tolerance);
    }
}

/// Fails where two lists are not the same to the bit, but for the sign of a zero.
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

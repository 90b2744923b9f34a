//! Comparisons that report what differs, where and by how much.

/// The largest absolute value.
pub fn largest<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    values.iter().fold(0.0, |largest, value| largest.max((*value).into().abs()))
}

/// Asserts that numbers are equal to within an absolute `tolerance`.
///
/// # Panics
/// When one differs by more, is NaN, or the lengths differ.
pub fn assert_close<F, E>(what: &str, found: &[F], expected: &[E], tolerance: f64)
where
    F: Copy + Into<f64>,
    E: Copy + Into<f64>,
{
    assert_eq!(found.len(), expected.len(), "{what}: the number of values differs");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected): (f64, f64) = ((*found).into(), (*expected).into());
        let error = (found - expected).abs();
        assert!(
            error <= tolerance,
            "{what}[{i}] is {found}, expected {expected}: error {error:e} > {tolerance:e}"
        );
    }
}

/// Asserts that numbers are equal to within `tolerance` times the largest expected one, or times
/// `smallest_scale` if that is larger.
///
/// # Panics
/// When one differs by more, is NaN, or the lengths differ.
pub fn assert_close_to_scale<F, E>(
    what: &str,
    found: &[F],
    expected: &[E],
    tolerance: f64,
    smallest_scale: f64,
) where
    F: Copy + Into<f64>,
    E: Copy + Into<f64>,
{
    assert_close(what, found, expected, tolerance * largest(expected).max(smallest_scale));
}

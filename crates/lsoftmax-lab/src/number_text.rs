//! Numbers in messages.

/// From here on, and below its inverse, a number has an exponent.
const LARGE: f64 = 1e9;

fn needs_exponent(value: f64) -> bool {
    value != 0.0 && !(1.0 / LARGE..LARGE).contains(&value.abs())
}

/// A number in full, or with an exponent if it is very large or small.
///
/// ```
/// use lsoftmax_lab::number_text::number_text;
/// assert_eq!([0.05, 5e7, 1e300].map(number_text), ["0.05", "50000000", "1e300"]);
/// ```
pub fn number_text(value: f64) -> String {
    if needs_exponent(value) { format!("{value:e}") } else { value.to_string() }
}

/// A number with so many decimals; with an exponent and three digits if it is very large, or so small that
/// at most one digit would be left.
///
/// ```
/// use lsoftmax_lab::number_text::decimals_text;
/// assert_eq!(decimals_text(0.12345, 3), "0.123");
/// assert_eq!(decimals_text(1.23456e200, 3), "1.23e200");
/// assert_eq!([0.0, 0.025, 0.00025].map(|rate| decimals_text(rate, 4)), ["0.0000", "0.0250", "2.5e-4"]);
/// ```
pub fn decimals_text(value: f64, decimals: usize) -> String {
    let small = 10f64.powi(1 - decimals as i32);
    if value == 0.0 || (small..LARGE).contains(&value.abs()) || !value.is_finite() {
        return format!("{value:.decimals$}");
    }
    let rounded: f64 = format!("{value:.2e}").parse().expect("a number was written");
    format!("{rounded:e}")
}

//! ψ, its slope and k, against a table computed with sixty digits and against the definition.

mod support;

use std::f64::consts::PI;

use lsoftmax::{AngularMargin, Margin, Psi};
use proptest::prelude::*;
use serde::Deserialize;
use support::{Batch, Run, SplitMix, Way, definition};

const EPSILON: f64 = f64::EPSILON;

/// A table of `psi.json`; a slope is missing where it is infinite.
#[derive(Deserialize)]
struct Table {
    margin: f64,
    cos: Vec<f64>,
    psi: Vec<f64>,
    slope: Vec<Option<f64>>,
    knot_cos: Vec<f64>,
    knot_psi: Vec<f64>,
    knot_slope: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Tables {
    cases: Vec<Table>,
}

fn tables() -> Vec<Table> {
    let text = include_str!("../../../reference/fixtures/psi.json");
    serde_json::from_str::<Tables>(text).unwrap().cases
}

fn psi_at(margin: f64, theta: f64) -> Psi {
    Margin::new(margin).unwrap().psi(theta.cos())
}

/// Integer and real margins.
fn any_margin() -> impl Strategy<Value = f64> {
    prop_oneof![(1u8..=20).prop_map(f64::from), 1.0..20.0]
}

/// A bound on the second derivative of ψ with respect to cos θ. For an integer m, where ψ is a
/// polynomial, it is below m⁴ at both ends; for a real m only at θ = 0.
fn steepness(margin: f64, cos: f64) -> f64 {
    let sine = (1.0 - cos * cos).sqrt();
    let inside = margin.powi(2) / sine.powi(2) + margin / sine.powi(3);
    let bounded = margin.fract() == 0.0 || cos > 0.0;
    if bounded { inside.min(margin.powi(4)) } else { inside }
}

#[test]
fn psi_and_its_slope_agree_with_the_table() {
    let tables = tables();
    assert_eq!(tables.len(), 11);
    for table in tables {
        let m = table.margin;
        let points = table.cos.iter().zip(&table.psi).zip(&table.slope);
        let knots = table.knot_cos.iter().zip(&table.knot_psi).zip(&table.knot_slope);
        for ((cos, value), slope) in points.chain(knots) {
            let found = Margin::new(m).unwrap().psi(*cos);
            let Some(slope) = slope else {
                assert!(found.slope.is_finite() && found.slope > 1e6, "{found:?}");
                continue;
            };
            // An error of one unit in the last place of cos θ affects ψ through its slope, and the slope
            // through the second derivative; every step of the recurrence adds one unit.
            let tolerance = 4.0 * EPSILON * (slope + m * m);
            let error = (found.value - value).abs();
            assert!(error <= tolerance, "m = {m}, cos = {cos}: {found:?} and not {value}");
            let tolerance = 4.0 * EPSILON * (steepness(m, *cos) + m.powi(3));
            let error = (found.slope - slope).abs();
            assert!(error <= tolerance, "m = {m}, cos = {cos}: {found:?} and not {slope}");
        }
    }
}

proptest! {
    #[test]
    fn psi_is_continuous_at_every_knot(m in any_margin(), step in 1e-9..1e-7f64) {
        for k in 1..m.ceil() as usize {
            let knot = k as f64 * PI / m;
            let (before, after) = (psi_at(m, knot - step), psi_at(m, (knot + step).min(PI)));
            // Both sides have the limit 1 − 2k with zero slope, so they differ from it by (m·step)²/2.
            let middle = 1.0 - 2.0 * k as f64;
            let tolerance = (m * step).powi(2) + 8.0 * EPSILON * m * m;
            prop_assert!((before.value - middle).abs() <= tolerance, "{m} {k} {before:?}");
            prop_assert!((after.value - middle).abs() <= tolerance, "{m} {k} {after:?}");
        }
    }

    #[test]
    fn psi_is_strictly_decreasing(m in any_margin(), one in 0.0..PI, other in 0.0..PI) {
        prop_assume!((one - other).abs() > 1e-3);
        let (small, large) = (one.min(other), one.max(other));
        // Even at a knot, where the slope is zero, it decreases by about (m·1e-3/2)², far above rounding.
        prop_assert!(psi_at(m, small).value > psi_at(m, large).value);
    }

    #[test]
    fn psi_agrees_with_its_definition(m in any_margin(), theta in 0.0..PI) {
        let found = psi_at(m, theta);
        let tolerance = 8.0 * EPSILON * (m * m + found.slope);
        prop_assert!((found.value - definition::psi(m, theta)).abs() <= tolerance);
    }

    #[test]
    fn the_slope_is_the_derivative_by_the_cosine(m in any_margin(), cos in -0.999..0.999f64) {
        let step = 1e-6;
        let margin = Margin::new(m).unwrap();
        let rise = margin.psi(cos + step).value - margin.psi(cos - step).value;
        let found = margin.psi(cos).slope;
        // The slope is continuous and changes by at most `steepness` per unit, including across a knot.
        let steep = steepness(m, cos - step).max(steepness(m, cos + step));
        let tolerance = step * steep + 8.0 * EPSILON * (m * m + found) / step;
        prop_assert!((rise / (2.0 * step) - found).abs() <= tolerance);
    }

    #[test]
    fn psi_is_never_above_the_cosine(m in any_margin(), theta in 0.0..=PI) {
        prop_assert!(psi_at(m, theta).value <= theta.cos() + 4.0 * EPSILON * m * m);
    }

    #[test]
    fn margin_one_is_the_cosine_to_the_bit(cos in -1.0..=1.0f64) {
        prop_assert_eq!(Margin::ONE.psi(cos), Psi { value: cos, slope: 1.0, k: 0 });
    }

    #[test]
    fn a_cosine_rounded_beyond_one_is_clamped(m in any_margin(), excess in 0.0..1e-3f64) {
        let margin = Margin::new(m).unwrap();
        prop_assert_eq!(margin.psi(1.0 + excess), margin.psi(1.0));
        prop_assert_eq!(margin.psi(-1.0 - excess), margin.psi(-1.0));
    }
}

#[test]
fn k_is_the_index_of_the_interval() {
    let whole = (1..=40).map(f64::from);
    let beside = [2.0f64, 3.0, 16.0].into_iter().flat_map(|m| [m.next_down(), m.next_up()]);
    let real = [1.001, 1.5, 2.5, 3.7, 3.999, 19.25, 999.5, 1000.0].into_iter().chain(beside);
    for m in whole.chain(real) {
        let margin = Margin::new(m).unwrap();
        assert_eq!(margin.intervals(), m.ceil() as usize);
        for k in 0..margin.intervals() {
            let (start, end) = (k as f64 * PI / m, ((k + 1) as f64 * PI / m).min(PI));
            // A millionth of π/m from either end is several units in the last place of cos θ.
            let inside = 1e-6 * (end - start);
            // Just above an integer, the last interval is shorter than the resolution of a cosine near π.
            let seen = end - start > 1e-6;
            for theta in
                [start + inside, (start + end) / 2.0, end - inside].into_iter().filter(|_| seen)
            {
                assert_eq!(psi_at(m, theta).k, k, "m = {m}, θ = {theta}");
            }
        }
        assert_eq!(margin.psi(1.0).k, 0, "m = {m}");
        let intervals = (m - 1e-9).ceil() as usize..=margin.intervals();
        assert!(intervals.contains(&(margin.psi(-1.0).k + 1)), "m = {m}");
    }
}

#[test]
fn the_ends_have_their_closed_forms() {
    for m in (1..=30).map(f64::from) {
        let margin = Margin::new(m).unwrap();
        let (start, end) = (margin.psi(1.0), margin.psi(-1.0));
        assert_eq!((start.value, start.slope), (1.0, m * m));
        assert_eq!((end.value, end.slope), (1.0 - 2.0 * m, m * m));
    }
    let real = Margin::new(2.5).unwrap().psi(1.0);
    assert_eq!((real.value, real.slope), (1.0, 6.25));
}

#[test]
fn only_numbers_from_one_to_a_thousand_are_margins() {
    for bad in [0.0, -1.0, 0.99, 1000.5, 1001.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let message = Margin::new(bad).unwrap_err().to_string();
        assert_eq!(message, format!("the margin must be a number from 1 to 1000, but is {bad}"));
    }
    for good in [1.0f64, 1.5, 4.0, 1000.0] {
        let margin = Margin::new(good).unwrap();
        assert_eq!((margin.value(), margin.is_identity()), (good, good == 1.0));
        assert_eq!(margin.as_integer(), (good.fract() == 0.0).then_some(good as usize));
        assert_eq!(margin.to_string(), good.to_string());
    }
}

#[test]
fn a_margin_is_serialized_as_a_number() {
    for m in [1.0, 2.5, 4.0, 1000.0] {
        let margin = Margin::new(m).unwrap();
        let text = serde_json::to_string(&margin).unwrap();
        assert_eq!(serde_json::from_str::<Margin>(&text).unwrap(), margin, "{text}");
    }
    assert_eq!(serde_json::from_str::<Margin>("4").unwrap(), Margin::new(4).unwrap());
    for bad in ["0", "0.99", "1001", "-2", "null", "\"4\"", "[4]"] {
        assert!(serde_json::from_str::<Margin>(bad).is_err(), "{bad}");
    }
    let message = serde_json::from_str::<Margin>("0.5").unwrap_err().to_string();
    assert!(message.starts_with("the margin must be a number from 1 to 1000"), "{message}");
}

#[test]
fn the_recurrence_stays_accurate_at_margin_thirty() {
    for i in 0..=1000 {
        let theta = PI * f64::from(i) / 1000.0;
        let found = psi_at(30.0, theta);
        let error = (found.value - definition::psi(30.0, theta)).abs();
        // Both start from a cosine or an angle with an error of one unit, which m² amplifies.
        assert!(error <= 900.0 * EPSILON, "θ = {theta}: off by {error:e}");
    }
}

/// The paper's binomial sum has an error of 1e-3 in f32 at m = 30; the head's recurrence does not.
#[test]
fn the_recurrence_stays_accurate_at_margin_thirty_in_f32() {
    let mut numbers = SplitMix(30);
    let angles: Vec<f64> = (0..200).map(|_| 0.3 + (PI - 0.6) * numbers.uniform()).collect();
    let features: Vec<[f64; 2]> = angles.iter().map(|a| [a.cos(), a.sin()]).collect();
    let features: Vec<&[f64]> = features.iter().map(|x| x.as_slice()).collect();
    // Against a class of zero weights the loss is ln(1 + e^−f), from which f follows.
    let batch = Batch::new(&features, &[&[1.0, 0.0], &[0.0, 0.0]], &[0; 200]).with_margin(30.0);
    let run = Run::new(Way::Composed, &batch);
    for (i, loss) in run.losses.iter().enumerate() {
        let (found, expected) = (-loss.exp_m1().ln(), definition::label_logit(&batch, i));
        let cos = angles[i].cos();
        // Three roundings in the cosine and two in a loss of up to 59, and the recurrence's own 8e-6.
        let unit = f64::from(f32::EPSILON) / 2.0;
        let slope = psi_at(30.0, angles[i]).slope;
        let tolerance = unit * (3.0 * slope + 2.0 * 59.0) + 8e-6;
        let error = (found - expected).abs();
        assert!(error <= tolerance, "cos = {cos}: off by {error:e} > {tolerance:e}");
    }
}

//! The λ schedules: closed forms, limits, and the file format.

use lsoftmax::{LambdaError, LambdaSchedule, Stage};
use proptest::prelude::*;

fn parse(text: &str) -> Result<LambdaSchedule, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn every_kind() -> [LambdaSchedule; 4] {
    let stages = vec![Stage { from: 0, value: 50.0 }, Stage { from: 700, value: 0.25 }];
    [
        LambdaSchedule::constant(3.5).unwrap(),
        LambdaSchedule::power(1000.0, 2e-5, 45.0, 5.0).unwrap(),
        LambdaSchedule::exponential(800.0, 0.99, 0.5).unwrap(),
        LambdaSchedule::staged(stages).unwrap(),
    ]
}

/// λ = base (1 + γ t)^(−power), by repeated multiplication and not by `powf`.
fn by_multiplication(base: f64, gamma: f64, power: u32, step: u64) -> f64 {
    (0..power).fold(base, |lambda, _| lambda / (1.0 + gamma * step as f64))
}

#[test]
fn the_authors_settings_follow_their_closed_form() {
    let settings = [("mnist", 2.5e-5, 35), ("cifar10", 2e-5, 45), ("cifar10+", 1e-5, 45)];
    for (name, gamma, power) in settings {
        let schedule = LambdaSchedule::power(1000.0, gamma, f64::from(power), 0.0).unwrap();
        for step in [0, 1, 100, 5_000, 8_000, 18_000, 30_000] {
            let (found, expected) =
                (schedule.at(step), by_multiplication(1000.0, gamma, power, step));
            // Each of the 45 divisions rounds once.
            assert!((found - expected).abs() <= 64.0 * f64::EPSILON * expected, "{name}, {step}");
        }
        assert_eq!(schedule.at(0), 1000.0, "{name}");
    }
    // By hand: 1000 · 1.5^−35 = 6.868e-4, 1000 · 1.6^−45 = 6.525e-7, 1000 · 1.3^−45 = 7.457e-3.
    let at =
        |gamma, power, step| LambdaSchedule::power(1000.0, gamma, power, 0.0).unwrap().at(step);
    assert!((at(2.5e-5, 35.0, 20_000) / 6.868e-4 - 1.0).abs() < 1e-3);
    assert!((at(2e-5, 45.0, 30_000) / 6.525e-7 - 1.0).abs() < 1e-3);
    assert!((at(1e-5, 45.0, 30_000) / 7.457e-3 - 1.0).abs() < 1e-3);
}

#[test]
fn the_sphereface_schedule_ends_at_its_minimum() {
    let schedule = LambdaSchedule::power(1000.0, 0.12, 1.0, 5.0).unwrap();
    assert_eq!(schedule.at(0), 1000.0);
    assert!((schedule.at(100) - 1000.0 / 13.0).abs() < 1e-12);
    // 1000 / (1 + 0.12 t) = 5 at t = 199 / 0.12 = 1658.3.
    assert!(schedule.at(1658) > 5.0);
    assert_eq!(schedule.at(1659), 5.0);
    assert_eq!(schedule.at(u64::MAX), 5.0);
}

#[test]
fn an_exponential_schedule_decays_by_its_factor_to_its_minimum() {
    let schedule = LambdaSchedule::exponential(1000.0, 0.5, 3.0).unwrap();
    let found: Vec<f64> = (0..11).map(|step| schedule.at(step)).collect();
    let expected = [1000.0, 500.0, 250.0, 125.0, 62.5, 31.25, 15.625, 7.8125, 3.90625, 3.0, 3.0];
    assert_eq!(found, expected);
    let constant = LambdaSchedule::exponential(7.0, 1.0, 0.0).unwrap();
    assert_eq!((constant.at(0), constant.at(u64::MAX)), (7.0, 7.0));
}

#[test]
fn a_stage_applies_from_its_first_step_to_the_next_stage() {
    let stages = [(0, 1000.0), (1, 100.0), (5000, 5.0), (5001, 0.0)];
    let stages = stages.map(|(from, value)| Stage { from, value }).to_vec();
    let schedule = LambdaSchedule::staged(stages).unwrap();
    for (step, expected) in [
        (0, 1000.0),
        (1, 100.0),
        (2, 100.0),
        (4999, 100.0),
        (5000, 5.0),
        (5001, 0.0),
        (u64::MAX, 0.0),
    ] {
        assert_eq!(schedule.at(step), expected, "{step}");
    }
}

proptest! {
    #[test]
    fn every_schedule_is_valid_non_increasing_and_at_least_its_minimum(
        base in 0.0..1e6f64,
        min in 0.0..10.0f64,
        gamma in 0.0..10.0f64,
        power in 0.0..100.0f64,
        decay in 1e-3..=1.0f64,
        step in any::<u64>(),
        more in any::<u32>(),
    ) {
        let later = step.saturating_add(u64::from(more));
        for schedule in [
            LambdaSchedule::power(base, gamma, power, min).unwrap(),
            LambdaSchedule::exponential(base, decay, min).unwrap(),
        ] {
            let (now, then) = (schedule.at(step), schedule.at(later));
            prop_assert!(now.is_finite() && now >= min, "{schedule:?} at {step}: {now}");
            // `powf` is accurate to one unit in the last place, not exact.
            prop_assert!(then <= now * (1.0 + 4.0 * f64::EPSILON), "{schedule:?}: {now}, {then}");
        }
    }
}

#[test]
fn a_stretched_schedule_has_the_value_of_the_original_at_the_scaled_step() {
    let stages = [(0, 50.0), (690, 9.0), (691, 8.0), (701, 0.25), (12_000, 0.0)];
    let stages = stages.map(|(from, value)| Stage { from, value }).to_vec();
    let staged = LambdaSchedule::staged(stages).unwrap();
    for schedule in every_kind().into_iter().chain([staged]) {
        for (new, old) in [(1, 1), (300, 18_000), (1, 3), (7, 1), (1_000, 999), (20_000, 18_000)] {
            let stretched = schedule.stretched(new as f64 / old as f64).unwrap();
            for step in 0..2_000 {
                // Exact where the scaled step is an integer, otherwise between its neighbours.
                let before = schedule.at(step * old / new);
                let after = schedule.at((step * old).div_ceil(new));
                let found = stretched.at(step);
                // decay^(1/factor) is rounded once and then raised to the power of the step.
                let slack = 1e-12 * before;
                let case = format!("{schedule:?}, {new}/{old}, step {step}");
                assert!(found <= before + slack && found >= after - slack, "{case}: {found}");
            }
        }
    }
}

#[test]
fn a_stretched_stage_starts_at_the_first_step_at_or_after_its_scaled_start() {
    let stages = |from: &[u64]| {
        let stage = |(value, from): (usize, &u64)| Stage { from: *from, value: value as f64 };
        LambdaSchedule::staged(from.iter().enumerate().map(stage).collect()).unwrap()
    };
    // 12,000 · 300 / 18,000 is 200, although the floating-point product is not; 10 / 3 rounds up to 4.
    assert_eq!(stages(&[0, 12_000]).stretched(300.0 / 18_000.0).unwrap(), stages(&[0, 200]));
    assert_eq!(stages(&[0, 10]).stretched(1.0 / 3.0).unwrap(), stages(&[0, 4]));
    // Stages 1 and 2 both start at step 1, where the later one applies.
    let met = stages(&[0, 10, 20]).stretched(0.01).unwrap();
    assert_eq!((met.at(0), met.at(1)), (0.0, 2.0));
}

#[test]
fn stretching_fails_only_for_factors_that_are_not_positive_and_finite() {
    for schedule in every_kind() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(schedule.stretched(factor).is_err(), "{schedule:?}, {factor}");
        }
        for factor in [f64::MIN_POSITIVE, 1e-300, 1e300, f64::MAX] {
            let stretched = schedule.stretched(factor).unwrap();
            assert_eq!(stretched.at(0), schedule.at(0), "{schedule:?}, {factor}");
            for step in [1, 1_000, u64::MAX] {
                let lambda = stretched.at(step);
                assert!(lambda.is_finite() && lambda >= 0.0, "{schedule:?}, {factor}: {lambda}");
            }
        }
    }
}

#[test]
fn a_resumed_run_has_the_same_schedule() {
    for schedule in every_kind() {
        let text = serde_json::to_string(&schedule).unwrap();
        let resumed = parse(&text).unwrap();
        assert_eq!(resumed, schedule, "{text}");
        // The first run evaluates every step, the resumed one only the last ones.
        let steps: Vec<f64> = (0..2000).map(|step| schedule.at(step)).collect();
        for step in [1999, 3, 700, 699] {
            assert_eq!(resumed.at(step).to_bits(), steps[step as usize].to_bits(), "{text}");
        }
    }
}

#[test]
fn a_file_has_the_schedule_and_may_omit_the_minimum() {
    let power = LambdaSchedule::power(1000.0, 2e-5, 45.0, 0.0);
    for (text, expected) in [
        (r#"{"schedule": "constant", "value": 5}"#, LambdaSchedule::constant(5.0)),
        (r#"{"schedule": "power", "base": 1000, "gamma": 2e-5, "power": 45}"#, power),
        (
            r#"{"schedule": "exponential", "base": 10, "decay": 0.5, "min": 1}"#,
            LambdaSchedule::exponential(10.0, 0.5, 1.0),
        ),
        (
            r#"{"schedule": "staged", "stages": [{"from": 0, "value": 5}]}"#,
            LambdaSchedule::staged(vec![Stage { from: 0, value: 5.0 }]),
        ),
    ] {
        assert_eq!(parse(text), Ok(expected.unwrap()), "{text}");
    }
}

#[test]
fn unknown_keys_and_schedules_are_rejected() {
    for (text, message) in [
        (r#"{"schedule": "constant", "value": 5, "min": 1}"#, "unknown field `min`"),
        (
            r#"{"schedule": "power", "base": 1, "gamma": 1, "power": 1, "lambda_min": 5}"#,
            "unknown field `lambda_min`",
        ),
        (
            r#"{"schedule": "exponential", "base": 1, "decay": 1, "rate": 5}"#,
            "unknown field `rate`",
        ),
        (r#"{"schedule": "staged", "stages": [], "min": 0}"#, "unknown field `min`"),
        (
            r#"{"schedule": "staged", "stages": [{"from": 0, "value": 5, "until": 9}]}"#,
            "unknown field `until`",
        ),
        (r#"{"schedule": "cosine", "base": 1}"#, "unknown variant `cosine`"),
        (r#"{"schedule": "power", "base": 1, "gamma": 1}"#, "missing field `power`"),
        (r#"{"value": 5}"#, "missing field `schedule`"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn an_invalid_parameter_in_a_file_is_rejected_with_its_name() {
    for (text, message) in [
        (
            r#"{"schedule": "constant", "value": -1}"#,
            "λ must be a finite number of at least 0, but is -1",
        ),
        (
            r#"{"schedule": "power", "base": 1, "gamma": -2, "power": 1}"#,
            "gamma of the λ schedule must be at least 0 and finite, but is -2",
        ),
        (
            r#"{"schedule": "exponential", "base": 1, "decay": 1.5}"#,
            "decay of the λ schedule must be above 0 and at most 1, but is 1.5",
        ),
        (r#"{"schedule": "staged", "stages": []}"#, "must start at step 0"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.contains(message), "{text}: {found}");
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    for bad in [-1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = |schedule: Result<LambdaSchedule, LambdaError>, expected: &str| match schedule
        {
            Err(LambdaError::Parameter { name, .. }) => assert_eq!(name, expected, "{bad}"),
            other => panic!("{expected} = {bad}: {other:?}"),
        };
        refused(LambdaSchedule::power(bad, 1.0, 1.0, 0.0), "base");
        refused(LambdaSchedule::power(1.0, bad, 1.0, 0.0), "gamma");
        refused(LambdaSchedule::power(1.0, 1.0, bad, 0.0), "power");
        refused(LambdaSchedule::power(1.0, 1.0, 1.0, bad), "min");
        refused(LambdaSchedule::exponential(bad, 0.5, 0.0), "base");
        refused(LambdaSchedule::exponential(1.0, 0.5, bad), "min");
        refused(LambdaSchedule::exponential(1.0, bad, 0.0), "decay");
        let constant = LambdaSchedule::constant(bad);
        assert!(matches!(constant, Err(LambdaError::Value(_))), "{constant:?}");
        let staged = LambdaSchedule::staged(vec![Stage { from: 0, value: bad }]);
        assert!(matches!(staged, Err(LambdaError::Value(_))), "{staged:?}");
    }
    assert!(LambdaSchedule::exponential(1.0, 0.0, 0.0).is_err());
    assert!(LambdaSchedule::exponential(1.0, 1.0 + f64::EPSILON, 0.0).is_err());
}

#[test]
fn stages_must_start_at_step_zero_and_increase() {
    for from in [&[][..], &[1], &[0, 5, 5], &[0, 5, 4], &[5, 0]] {
        let stages = from.iter().map(|from| Stage { from: *from, value: 1.0 }).collect();
        assert_eq!(LambdaSchedule::staged(stages), Err(LambdaError::Stages), "{from:?}");
    }
}

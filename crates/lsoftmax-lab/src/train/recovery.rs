//! What happens after training has diverged: nothing, or a return to an earlier checkpoint with a larger λ.

use super::divergence::{Divergence, Settings};
use super::{OnDivergence, TrainError};
use crate::run::Rollback;

/// Rollbacks, at most.
const MOST_ROLLBACKS: usize = 5;
/// λ is at least this many times as large after a rollback, and at least [`LEAST_LAMBDA`].
const LAMBDA_FACTOR: f64 = 4.0;
const LEAST_LAMBDA: f64 = 1.0;

/// Where a run resumes after a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The beginning.
    Beginning,
    /// The newest checkpoint.
    Newest,
    /// The newest checkpoint before a step.
    Before(u64),
}

/// Decides where to resume, or that the run ends.
///
/// The target is the last checkpoint, or one before the last rollback's target if the run has not come
/// further since; the beginning if nothing was learned.
///
/// # Errors
/// When the run is to stop on divergence, λ has no effect, or enough has been tried.
pub(super) fn target(
    divergence: Divergence,
    step: u64,
    settings: Settings,
    on_divergence: OnDivergence,
    rollbacks: &[Rollback],
) -> Result<Target, TrainError> {
    let Settings { rate, lambda: Some(lambda) } = settings else { return Err(divergence.into()) };
    if on_divergence == OnDivergence::Stop {
        return Err(divergence.into());
    }
    if rollbacks.len() == MOST_ROLLBACKS {
        return Err(TrainError::Hopeless { step, rollbacks: rollbacks.len(), lambda, rate });
    }
    Ok(match (&divergence, rollbacks.last()) {
        (Divergence::Chance { .. }, _) => Target::Beginning,
        (_, Some(last)) if step <= last.step => Target::Before(last.to),
        _ => Target::Newest,
    })
}

/// The rollback from `step`, where λ was `lambda`, to the step `to`.
pub(super) fn rollback(step: u64, to: u64, lambda: f64, reason: String) -> Rollback {
    let lambda_floor = (LAMBDA_FACTOR * lambda).max(LEAST_LAMBDA);
    Rollback { step, to, lambda_floor, reason }
}

/// What λ must not fall below after these rollbacks.
pub(super) fn lambda_floor(rollbacks: &[Rollback]) -> f64 {
    rollbacks.last().map_or(0.0, |last| last.lambda_floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { rate: 0.1, lambda: Some(2.0) };

    fn not_finite(step: u64) -> Divergence {
        Divergence::NotFinite { step, what: "x".into(), settings: SETTINGS }
    }

    fn chosen(divergence: Divergence, step: u64, rollbacks: &[Rollback]) -> Target {
        target(divergence, step, SETTINGS, OnDivergence::Rollback, rollbacks).expect("a target")
    }

    #[test]
    fn a_run_that_got_no_further_goes_back_further() {
        let first = rollback(50, 40, 2.0, "x".into());
        assert_eq!(chosen(not_finite(50), 50, &[]), Target::Newest);
        assert_eq!(chosen(not_finite(50), 50, std::slice::from_ref(&first)), Target::Before(40));
        assert_eq!(chosen(not_finite(51), 51, &[first]), Target::Newest);
    }

    #[test]
    fn a_model_at_chance_has_no_good_checkpoint() {
        let chance = Divergence::Chance { step: 50, error: 90.0, settings: SETTINGS };
        assert_eq!(chosen(chance, 50, &[]), Target::Beginning);
    }

    #[test]
    fn the_run_ends_when_told_to_stop_without_a_margin_or_after_five_rollbacks() {
        let stopped = target(not_finite(1), 1, SETTINGS, OnDivergence::Stop, &[]);
        assert!(matches!(stopped, Err(TrainError::Divergence(_))));
        let without = Settings { lambda: None, ..SETTINGS };
        let stopped = target(not_finite(1), 1, without, OnDivergence::Rollback, &[]);
        assert!(matches!(stopped, Err(TrainError::Divergence(_))));
        let five = vec![rollback(5, 1, 2.0, "x".into()); MOST_ROLLBACKS];
        let stopped = target(not_finite(9), 9, SETTINGS, OnDivergence::Rollback, &five);
        assert!(matches!(stopped, Err(TrainError::Hopeless { .. })));
    }

    #[test]
    fn lambda_grows_with_each_rollback_and_is_at_least_one() {
        assert_eq!(lambda_floor(&[]), 0.0);
        assert_eq!(rollback(5, 1, 2.0, "x".into()).lambda_floor, 8.0);
        assert_eq!(rollback(5, 1, 0.01, "x".into()).lambda_floor, 1.0);
    }
}

//! Recovery from divergence: a rollback to an earlier checkpoint with a larger λ.

use super::divergence::{Divergence, Settings};
use super::{OnDivergence, TrainError};
use crate::run::Rollback;

/// The maximum number of rollbacks.
const MOST_ROLLBACKS: usize = 5;
/// After a rollback, λ is at least this multiple of its previous value and at least [`LEAST_LAMBDA`].
const LAMBDA_FACTOR: f64 = 4.0;
const LEAST_LAMBDA: f64 = 1.0;

/// Where a run resumes after a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RollbackTarget {
    /// The start of the run.
    Start,
    /// The newest checkpoint.
    Newest,
    /// The newest checkpoint before a step.
    Before(u64),
}

/// Decides where to resume, or that the run ends.
///
/// The target is the newest checkpoint, or one before the target of the last rollback if the run has
/// made no progress since; the start of the run if the model is no better than chance.
///
/// # Errors
/// When the run should stop on divergence, λ has no effect, or there were too many rollbacks.
pub(super) fn target(
    divergence: Divergence,
    step: u64,
    settings: Settings,
    on_divergence: OnDivergence,
    rollbacks: &[Rollback],
) -> Result<RollbackTarget, TrainError> {
    let Settings { rate, lambda: Some(lambda) } = settings else { return Err(divergence.into()) };
    if on_divergence == OnDivergence::Stop {
        return Err(divergence.into());
    }
    if rollbacks.len() == MOST_ROLLBACKS {
        return Err(TrainError::RollbacksExhausted {
            step,
            rollbacks: rollbacks.len(),
            lambda,
            rate,
        });
    }
    Ok(match (&divergence, rollbacks.last()) {
        (Divergence::Chance { .. }, _) => RollbackTarget::Start,
        (_, Some(last)) if step <= last.step => RollbackTarget::Before(last.to),
        _ => RollbackTarget::Newest,
    })
}

/// The rollback from `step`, where λ was `lambda`, to the step `to`.
pub(super) fn rollback(step: u64, to: u64, lambda: f64, reason: String) -> Rollback {
    let lambda_floor = (LAMBDA_FACTOR * lambda).max(LEAST_LAMBDA);
    Rollback { step, to, lambda_floor, reason }
}

/// The lower bound of λ after these rollbacks.
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

    fn chosen(divergence: Divergence, step: u64, rollbacks: &[Rollback]) -> RollbackTarget {
        target(divergence, step, SETTINGS, OnDivergence::Rollback, rollbacks).expect("a target")
    }

    #[test]
    fn without_progress_a_rollback_goes_further_back() {
        let first = rollback(50, 40, 2.0, "x".into());
        assert_eq!(chosen(not_finite(50), 50, &[]), RollbackTarget::Newest);
        assert_eq!(
            chosen(not_finite(50), 50, std::slice::from_ref(&first)),
            RollbackTarget::Before(40)
        );
        assert_eq!(chosen(not_finite(51), 51, &[first]), RollbackTarget::Newest);
    }

    #[test]
    fn a_model_at_chance_starts_over() {
        let chance = Divergence::Chance { step: 50, error: 90.0, settings: SETTINGS };
        assert_eq!(chosen(chance, 50, &[]), RollbackTarget::Start);
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
        assert!(matches!(stopped, Err(TrainError::RollbacksExhausted { .. })));
    }

    #[test]
    fn lambda_grows_with_each_rollback_and_is_at_least_one() {
        assert_eq!(lambda_floor(&[]), 0.0);
        assert_eq!(rollback(5, 1, 2.0, "x".into()).lambda_floor, 8.0);
        assert_eq!(rollback(5, 1, 0.01, "x".into()).lambda_floor, 1.0);
    }
}

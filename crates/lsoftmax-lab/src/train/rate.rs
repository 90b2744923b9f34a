//! The learning rate as a run goes on.

use serde::{Deserialize, Serialize};

use crate::recipe::LearningRate;

/// What a plateau schedule remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateState {
    /// How often the rate has fallen.
    pub drops: u64,
    /// The least loss seen.
    pub least: Option<f64>,
    /// Evaluations since then, or since the last fall.
    pub waited: u64,
}

/// A schedule and its state.
#[derive(Clone, Debug)]
pub struct Rate<'a> {
    schedule: &'a LearningRate,
    /// What has happened so far.
    pub state: RateState,
}

impl<'a> Rate<'a> {
    /// The schedule, at a state.
    pub fn new(schedule: &'a LearningRate, state: RateState) -> Self {
        Self { schedule, state }
    }

    /// The rate of a step.
    pub fn at(&self, step: u64) -> f64 {
        match self.schedule {
            LearningRate::Steps { rate, factor, at } => {
                let falls = at.iter().filter(|at| **at <= step).count();
                rate * factor.powi(falls as i32)
            }
            LearningRate::Plateau { rate, factor, .. } => {
                rate * factor.powi(self.state.drops as i32)
            }
        }
    }

    /// Takes note of an evaluation's loss.
    pub fn evaluated(&mut self, loss: f64) {
        let LearningRate::Plateau { patience, .. } = self.schedule else { return };
        let state = &mut self.state;
        if state.least.is_none_or(|least| loss < least) {
            state.least = Some(loss);
            state.waited = 0;
            return;
        }
        state.waited += 1;
        if state.waited >= *patience {
            state.waited = 0;
            state.drops += 1;
        }
    }

    /// Whether the last wait is over, and the run with it.
    pub fn is_done(&self) -> bool {
        match self.schedule {
            LearningRate::Steps { .. } => false,
            LearningRate::Plateau { drops, .. } => self.state.drops > *drops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_schedule_falls_at_its_steps() {
        let schedule = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![12_000, 15_000] };
        let rate = Rate::new(&schedule, RateState::default());
        let found = [0, 11_999, 12_000, 14_999, 15_000].map(|step| rate.at(step));
        for (found, expected) in found.into_iter().zip([0.1, 0.1, 0.01, 0.01, 0.001]) {
            assert!((found / expected - 1.0f64).abs() < 1e-12);
        }
    }

    #[test]
    fn a_plateau_schedule_falls_when_the_loss_does_not_and_ends_after_the_last_wait() {
        let schedule = LearningRate::Plateau { rate: 1.0, factor: 0.5, patience: 2, drops: 1 };
        let mut rate = Rate::new(&schedule, RateState::default());
        let losses = [3.0, 2.0, 2.5, 2.1, 1.9, 2.0, 2.0];
        let rates = losses.map(|loss| {
            rate.evaluated(loss);
            (!rate.is_done(), rate.at(0))
        });
        let expected = [
            (true, 1.0),
            (true, 1.0),
            (true, 1.0),
            (true, 0.5),
            (true, 0.5),
            (true, 0.5),
            (false, 0.25),
        ];
        assert_eq!(rates, expected);
    }
}

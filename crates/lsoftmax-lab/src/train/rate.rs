//! The learning-rate schedule.

use serde::{Deserialize, Serialize};

use crate::recipe::LearningRate;

/// The state of a plateau schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateState {
    /// The number of times the rate has dropped.
    pub drops: u64,
    /// The lowest loss so far.
    pub least: Option<f64>,
    /// The number of evaluations since the lowest loss or the last drop.
    pub waited: u64,
}

/// A schedule and its state.
#[derive(Clone, Debug)]
pub struct Rate<'a> {
    schedule: &'a LearningRate,
    /// Its current state.
    pub state: RateState,
}

impl<'a> Rate<'a> {
    /// A schedule in the given state.
    pub fn new(schedule: &'a LearningRate, state: RateState) -> Self {
        Self { schedule, state }
    }

    /// The rate of a step.
    pub fn at(&self, step: u64) -> f64 {
        match self.schedule {
            LearningRate::Steps { rate, factor, at } => {
                let drops = at.iter().filter(|at| **at <= step).count();
                rate * factor.powi(drops as i32)
            }
            LearningRate::Plateau { rate, factor, .. } => {
                rate * factor.powi(self.state.drops as i32)
            }
        }
    }

    /// Updates the state with the loss of an evaluation.
    pub fn record_evaluation(&mut self, loss: f64) {
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

    /// Whether the plateau after the last drop has been reached, which ends the run.
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
    fn a_step_schedule_drops_at_its_steps() {
        let schedule = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![12_000, 15_000] };
        let rate = Rate::new(&schedule, RateState::default());
        let found = [0, 11_999, 12_000, 14_999, 15_000].map(|step| rate.at(step));
        for (found, expected) in found.into_iter().zip([0.1, 0.1, 0.01, 0.01, 0.001]) {
            assert!((found / expected - 1.0f64).abs() < 1e-12);
        }
    }

    #[test]
    fn a_plateau_schedule_drops_when_the_loss_stagnates_and_ends_after_the_last_plateau() {
        let schedule = LearningRate::Plateau { rate: 1.0, factor: 0.5, patience: 2, drops: 1 };
        let mut rate = Rate::new(&schedule, RateState::default());
        let losses = [3.0, 2.0, 2.5, 2.1, 1.9, 2.0, 2.0];
        let rates = losses.map(|loss| {
            rate.record_evaluation(loss);
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

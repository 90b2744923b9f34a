//! The learning-rate schedule.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::recipe::{LearningRate, Recipe};

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

/// The schedule of a recipe, and its state.
#[derive(Clone, Debug)]
pub struct Rate<'a> {
    recipe: &'a Recipe,
    /// Its current state.
    pub state: RateState,
}

impl<'a> Rate<'a> {
    /// A recipe's schedule in the given state.
    pub fn new(recipe: &'a Recipe, state: RateState) -> Self {
        Self { recipe, state }
    }

    /// The rate of a step, counted from 0. Of a warm-up of N steps, step t has (t + 1) / N of the
    /// schedule's rate.
    pub fn at(&self, step: u64) -> f64 {
        let rate = self.without_warmup(step);
        match self.recipe.warmup {
            warmup if step + 1 < warmup => rate * ((step + 1) as f64 / warmup as f64),
            _ => rate,
        }
    }

    fn without_warmup(&self, step: u64) -> f64 {
        match &self.recipe.learning_rate {
            LearningRate::Steps { rate, factor, at } => {
                let drops = at.iter().filter(|at| **at <= step).count();
                rate * factor.powi(drops as i32)
            }
            LearningRate::Plateau { rate, factor, .. } => {
                rate * factor.powi(self.state.drops as i32)
            }
            LearningRate::Cosine { rate, min, until } => {
                let warmup = self.recipe.warmup;
                let length = until.unwrap_or(self.recipe.steps).saturating_sub(warmup).max(1);
                let part = (step.saturating_sub(warmup) as f64 / length as f64).min(1.0);
                min + (rate - min) * (1.0 + (PI * part).cos()) / 2.0
            }
        }
    }

    /// Updates the state with the loss of an evaluation.
    pub fn record_evaluation(&mut self, loss: f64) {
        let LearningRate::Plateau { patience, .. } = &self.recipe.learning_rate else { return };
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
        match &self.recipe.learning_rate {
            LearningRate::Plateau { drops, .. } => self.state.drops > *drops,
            LearningRate::Steps { .. } | LearningRate::Cosine { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(learning_rate: LearningRate) -> Recipe {
        Recipe { learning_rate, ..Recipe::built_in("mnist").expect("a built-in recipe") }
    }

    #[test]
    fn a_step_schedule_drops_at_its_steps() {
        let schedule = LearningRate::Steps { rate: 0.1, factor: 0.1, at: vec![12_000, 15_000] };
        let recipe = recipe(schedule);
        let rate = Rate::new(&recipe, RateState::default());
        let found = [0, 11_999, 12_000, 14_999, 15_000].map(|step| rate.at(step));
        for (found, expected) in found.into_iter().zip([0.1, 0.1, 0.01, 0.01, 0.001]) {
            assert!((found / expected - 1.0f64).abs() < 1e-12);
        }
    }

    #[test]
    fn a_plateau_schedule_drops_when_the_loss_stagnates_and_ends_after_the_last_plateau() {
        let schedule = LearningRate::Plateau { rate: 1.0, factor: 0.5, patience: 2, drops: 1 };
        let recipe = recipe(schedule);
        let mut rate = Rate::new(&recipe, RateState::default());
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
    #[test]
    fn a_warmup_is_linear_and_multiplies_every_schedule() {
        let steps = LearningRate::Steps { rate: 0.5, factor: 0.5, at: vec![2] };
        let recipe = Recipe { warmup: 4, ..recipe(steps) };
        let rate = Rate::new(&recipe, RateState::default());
        assert_eq!([0, 1, 2, 3, 4].map(|step| rate.at(step)), [0.125, 0.25, 0.1875, 0.25, 0.25]);
        let plateau = LearningRate::Plateau { rate: 1.0, factor: 0.5, patience: 2, drops: 1 };
        let recipe = Recipe { learning_rate: plateau, ..recipe };
        let state = RateState { drops: 1, ..RateState::default() };
        assert_eq!([0, 3, 9].map(|step| Rate::new(&recipe, state).at(step)), [0.125, 0.5, 0.5]);
    }

    #[test]
    fn a_cosine_falls_from_the_rate_after_the_warmup_to_its_minimum() {
        let cosine = LearningRate::Cosine { rate: 0.5, min: 0.1, until: Some(30) };
        let recipe = Recipe { warmup: 10, steps: 90, ..recipe(cosine) };
        let rate = Rate::new(&recipe, RateState::default());
        let found = [0, 9, 10, 20, 30, 31, 89].map(|step| rate.at(step));
        for (found, expected) in found.into_iter().zip([0.05, 0.5, 0.5, 0.3, 0.1, 0.1, 0.1]) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
        assert!(!rate.is_done());
    }
}

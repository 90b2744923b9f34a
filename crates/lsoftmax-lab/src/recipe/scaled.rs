//! Changing the length of a run.

use super::{LearningRate, Recipe};

impl Recipe {
    /// The recipe with `steps` steps, at least 1, and all schedules and intervals scaled in proportion:
    /// learning rate, λ, evaluations, log and checkpoints.
    ///
    /// Unless the length is unchanged, the expected results are removed. In a very short run, drops of
    /// the learning rate that coincide are merged, and those at the start or end of the run are removed.
    pub fn scaled(&self, steps: u64) -> Self {
        let (old, new) = (self.steps.max(1), steps.max(1));
        let scaled = |step: u64| rounded(step, new, old);
        let interval = |steps: u64| scaled(steps).max(1);
        let mut recipe = self.clone();
        recipe.steps = new;
        if new != old {
            recipe.expected.clear();
        }
        recipe.lambda = self
            .lambda
            .stretched(new as f64 / old as f64)
            .expect("a ratio of positive integers is above 0 and finite");
        recipe.warmup = scaled(self.warmup);
        match &mut recipe.learning_rate {
            LearningRate::Steps { at, .. } => {
                *at = at
                    .iter()
                    .map(|step| scaled(*step))
                    .filter(|step| (1..new).contains(step))
                    .collect();
                at.dedup();
            }
            LearningRate::Cosine { until, .. } => {
                *until = until.map(interval);
                // In a run of one step, or one whose end is rounded to it, there is no warm-up.
                recipe.warmup = recipe.warmup.min(until.unwrap_or(new) - 1);
            }
            LearningRate::Plateau { .. } => {}
        }
        recipe.evaluate_every = interval(self.evaluate_every);
        recipe.log_every = interval(self.log_every);
        recipe.checkpoint_every = interval(self.checkpoint_every);
        recipe
    }

    /// The recipe with `steps` steps, at least 1, and unchanged schedules and intervals; drops of the
    /// learning rate after the last step are removed. In a longer run, the schedules keep their last value.
    pub fn with_steps(&self, steps: u64) -> Self {
        let mut recipe = self.clone();
        recipe.steps = steps.max(1);
        if recipe.steps != self.steps {
            recipe.expected.clear();
        }
        match &mut recipe.learning_rate {
            LearningRate::Steps { at, .. } => at.retain(|step| *step < recipe.steps),
            LearningRate::Cosine { until, .. } if recipe.steps != self.steps => {
                *until = until.or(Some(self.steps));
            }
            LearningRate::Cosine { .. } | LearningRate::Plateau { .. } => {}
        }
        recipe
    }
}

/// step · new / old, rounded to the nearest integer.
fn rounded(step: u64, new: u64, old: u64) -> u64 {
    let (step, new, old) = (u128::from(step), u128::from(new), u128::from(old));
    u64::try_from((step * new + old / 2) / old).unwrap_or(u64::MAX)
}

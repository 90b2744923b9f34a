//! The same run, shorter or longer.

use super::{LearningRate, Recipe};

impl Recipe {
    /// The recipe with `steps` steps, at least 1, and everything that happens by step moved in
    /// proportion: learning rate, λ, evaluations, log and checkpoints.
    ///
    /// No result is expected of a run of another length. In one so short that falls of the learning
    /// rate meet, or meet an end of the run, one of them remains, or none.
    pub fn scaled(&self, steps: u64) -> Self {
        let (old, new) = (self.steps.max(1), steps.max(1));
        let moved = |step: u64| rounded(step, new, old);
        let interval = |steps: u64| moved(steps).max(1);
        let mut recipe = self.clone();
        recipe.steps = new;
        if new != old {
            recipe.expected.clear();
        }
        recipe.lambda = self
            .lambda
            .stretched(new as f64 / old as f64)
            .expect("a ratio of whole numbers is above 0 and finite");
        if let LearningRate::Steps { at, .. } = &mut recipe.learning_rate {
            *at =
                at.iter().map(|step| moved(*step)).filter(|step| (1..new).contains(step)).collect();
            at.dedup();
        }
        recipe.evaluate_every = interval(self.evaluate_every);
        recipe.log_every = interval(self.log_every);
        recipe.checkpoint_every = interval(self.checkpoint_every);
        recipe
    }

    /// The recipe with `steps` steps, at least 1, and nothing else moved: what would come after the
    /// last of them does not.
    pub fn cut_to(&self, steps: u64) -> Self {
        let mut recipe = self.clone();
        recipe.steps = steps.max(1);
        if recipe.steps != self.steps {
            recipe.expected.clear();
        }
        if let LearningRate::Steps { at, .. } = &mut recipe.learning_rate {
            at.retain(|step| *step < recipe.steps);
        }
        recipe
    }
}

/// step · new / old, to the nearest whole number.
fn rounded(step: u64, new: u64, old: u64) -> u64 {
    let (step, new, old) = (u128::from(step), u128::from(new), u128::from(old));
    u64::try_from((step * new + old / 2) / old).unwrap_or(u64::MAX)
}

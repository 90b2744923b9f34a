//! Which recipes describe the same experiment.

use std::collections::BTreeMap;

use lsoftmax::Margin;

use super::{Keep, Lambda, LearningRate, OnDivergence, Recipe};
use crate::head::HeadSettings;

impl Recipe {
    /// Whether both describe the same experiment: the same but for the seed, the name and what is merely
    /// observed. λ is compared by its values, and not at all without a margin.
    pub fn is_same_experiment(&self, other: &Self) -> bool {
        self.essence() == other.essence()
            && (!self.has_margin() || same_lambda(&self.lambda, &other.lambda, self.steps))
    }

    /// This recipe with everything set to a fixed value that does not change a run's result.
    fn essence(&self) -> Self {
        let mut essence = Self {
            name: String::new(),
            source: String::new(),
            expected: BTreeMap::new(),
            data: self.data.clone().without_directories(),
            lambda: Lambda::AUTO,
            seed: 0,
            log_every: 1,
            checkpoint_every: 1,
            test_curve: false,
            on_divergence: OnDivergence::Stop,
            ..self.clone()
        };
        if !self.loss.uses_margin() {
            essence.head = HeadSettings::l_softmax(Margin::ONE);
        }
        // A plateau, the best model and an early end are found by evaluations.
        let plateau = matches!(self.learning_rate, LearningRate::Plateau { .. });
        if !plateau && self.keep == Keep::Last && self.early_stopping.is_none() {
            essence.evaluate_every = 1;
        }
        essence.with_optimiser(self.optimiser())
    }
}

/// Whether λ is the same at every step, but for rounding.
fn same_lambda(one: &Lambda, other: &Lambda, steps: u64) -> bool {
    let (one, other) = match (one, other) {
        (Lambda::Auto(one), Lambda::Auto(other)) => return one == other,
        (Lambda::Schedule(one), Lambda::Schedule(other)) => (one, other),
        _ => return false,
    };
    (0..steps).all(|step| {
        let (one, other) = (one.at(step), other.at(step));
        (one - other).abs() <= 1e-9 * one.max(other)
    })
}

#[cfg(test)]
mod tests {
    use lsoftmax::{LambdaSchedule, Stage};

    use super::*;

    fn mnist() -> Recipe {
        Recipe::built_in("mnist").expect("a built-in recipe")
    }

    fn l_softmax(m: f64) -> HeadSettings {
        HeadSettings::l_softmax(Margin::new(m).expect("a margin"))
    }

    #[test]
    fn seed_name_and_intervals_do_not_matter() {
        let mut other = mnist();
        (other.seed, other.log_every, other.checkpoint_every) = (7, 3, 11);
        (other.evaluate_every, other.test_curve) = (17, true);
        other.name = "another".into();
        other.expected.clear();
        assert!(mnist().is_same_experiment(&other));
    }

    #[test]
    fn evaluations_matter_where_something_is_chosen_by_them() {
        for chooses in
            [Recipe { keep: Keep::Best, ..mnist() }, Recipe { early_stopping: Some(3), ..mnist() }]
        {
            let other = Recipe { evaluate_every: 17, ..chooses.clone() };
            assert!(!chooses.is_same_experiment(&other));
        }
    }

    #[test]
    fn everything_that_changes_the_result_matters() {
        let changes: [fn(&mut Recipe); 6] = [
            |recipe| recipe.steps += 1,
            |recipe| recipe.batch = 128,
            |recipe| recipe.validation = 4000,
            |recipe| recipe.head = l_softmax(3.0),
            |recipe| recipe.lambda = Lambda::constant(5.0).unwrap(),
            |recipe| recipe.precision = lsoftmax::Precision::F32,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut other = mnist();
            change(&mut other);
            assert!(!mnist().is_same_experiment(&other), "change {index}");
        }
    }

    #[test]
    fn lambda_matters_at_every_step() {
        let staged = |from| {
            let stages = [(0, 20.0), (from, 2.0)].map(|(from, value)| Stage { from, value });
            let schedule = LambdaSchedule::staged(stages.to_vec()).unwrap();
            Recipe { lambda: Lambda::Schedule(schedule), ..mnist() }
        };
        assert!(staged(12_000).is_same_experiment(&staged(12_000)));
        assert!(!staged(12_000).is_same_experiment(&staged(12_001)));
    }

    #[test]
    fn lambda_matters_only_with_a_margin() {
        let softmax = Recipe { head: l_softmax(1.0), ..mnist() };
        let other = Recipe { lambda: Lambda::AUTO, ..softmax.clone() };
        assert!(softmax.is_same_experiment(&other));
    }

    #[test]
    fn a_schedule_that_was_stretched_and_written_is_the_same() {
        let short = mnist().scaled(1234);
        let read = Recipe::from_toml(&short.to_toml(), "a record").expect("a valid recipe");
        assert!(short.is_same_experiment(&read));
    }
}

//! `lambda = "auto"`: λ by how well the network satisfies the margin.
//!
//! A schedule by step must be tuned to the data and to the learning-rate schedule: if λ falls too early,
//! at a high learning rate, the margin costs more images than it separates, and training stalls; if it
//! falls too late, the margin never acts. Here the margin is introduced as fast as the network can
//! satisfy it. λ falls fast as long as nearly all images that are classified correctly remain so with the
//! margin at the current λ. While the learning rate is high, the margin soon costs too many of them, and
//! λ waits; when the rate drops, the classes separate further, and λ follows.
//!
//! With many classes nearly every margin costs more than that, and λ would wait until the end. So it has
//! an upper bound, which falls exponentially from the first step to the last: on the way it is close to
//! the schedules that are tied to the paper's learning rate.
//!
//! With images that are all fitted, nearly any margin costs nothing, and λ would fall to nothing while the
//! learning rate is still high; in long runs the network has been seen to collapse there. So λ has a lower
//! bound as well, in proportion to the learning rate and to m − 1: a smaller margin needs a smaller λ for
//! the same effect, and collapses later or not at all.
//!
//! λ is a function of the metrics of all previous steps. Its state is in the checkpoint, so that a
//! resumed run continues with the same λ.

use serde::{Deserialize, Serialize};

use crate::objective::BatchMetrics;
use crate::recipe::AutoRule;

/// λ at the first step, where the loss is almost that of softmax, and its maximum.
const START: f64 = 1000.0;
/// The minimum of λ, where the margin is all but complete.
const LEAST: f64 = 1e-3;
/// λ changes by a factor of e^SPEED over the whole run if it only falls or only rises. From [`START`] to
/// [`LEAST`] is a factor of e^13.8.
const SPEED: f64 = 16.0;
/// The time constant of the moving averages, as a fraction of the run.
const AVERAGED_FRACTION: f64 = 0.01;
/// The least time constant of the moving averages, in steps.
const FEWEST_AVERAGED_STEPS: f64 = 5.0;

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// The number of steps that have been taken.
    pub done: u64,
    /// The number of steps that the run has at most.
    pub steps: u64,
    /// The lower bound of λ at the learning rate of the next step; see [`AutoRule::lower_bound`].
    pub least: f64,
}

/// λ and the moving averages that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AutoLambda {
    /// λ of the next step.
    pub lambda: f64,
    /// The moving average of the accuracy without the margin; `None` before the first step.
    accuracy: Option<f64>,
    /// The moving average of the accuracy with the margin; `None` before the first step.
    margin_accuracy: Option<f64>,
}

impl Default for AutoLambda {
    fn default() -> Self {
        Self { lambda: START, accuracy: None, margin_accuracy: None }
    }
}

impl AutoLambda {
    /// Updates λ after the first part of a run, the last step of which has these metrics: it falls if at least the fraction `keep`
    /// of the images that are classified correctly remain so under the margin, and rises otherwise, between two bounds. The upper
    /// one falls to `end`. Where they cross, it holds.
    pub fn next(&mut self, metrics: &BatchMetrics, position: Position, rule: AutoRule) {
        let Position { done, steps, least } = position;
        let steps = steps as f64;
        let share = 1.0 / (AVERAGED_FRACTION * steps).max(FEWEST_AVERAGED_STEPS);
        let average = |old: Option<f64>, new: f64| old.map_or(new, |old| old + share * (new - old));
        let accuracy = average(self.accuracy, metrics.accuracy);
        let margin_accuracy = average(self.margin_accuracy, metrics.margin_accuracy);
        let factor = (-SPEED / steps).exp();
        let satisfied = margin_accuracy >= rule.keep * accuracy;
        let lambda = if satisfied { self.lambda * factor } else { self.lambda / factor };
        let bound = START * (rule.end / START).powf((done as f64 / steps).min(1.0));
        *self = Self {
            lambda: lambda.max(least).min(bound).max(LEAST),
            accuracy: Some(accuracy),
            margin_accuracy: Some(margin_accuracy),
        };
    }
}

#[cfg(test)]
mod tests {
    use lsoftmax::Margin;
    use proptest::prelude::*;

    use super::*;
    use crate::head::HeadMargin;

    /// Without bounds but those of [`START`] and [`LEAST`].
    const BY_ACCURACY: AutoRule = AutoRule { keep: 0.9, end: START, floor: 0.0 };

    fn metrics(accuracy: f64, margin_accuracy: f64) -> BatchMetrics {
        BatchMetrics { accuracy, margin_accuracy, ..BatchMetrics::default() }
    }

    /// Without a lower bound.
    fn position(done: u64, steps: u64) -> Position {
        Position { done, steps, least: 0.0 }
    }

    fn after(steps: u64, of: u64, metrics: BatchMetrics) -> AutoLambda {
        let mut auto = AutoLambda::default();
        (1..=steps).for_each(|done| auto.next(&metrics, position(done, of), BY_ACCURACY));
        auto
    }

    #[test]
    fn lambda_falls_at_the_stated_speed_while_the_margin_is_satisfied() {
        for steps in [100, 18_000] {
            let half = after(steps / 2, steps, metrics(0.8, 0.75));
            let expected = START * (-SPEED / 2.0).exp();
            assert!((half.lambda / expected - 1.0).abs() < 1e-9, "{half:?}");
            assert_eq!(after(steps, steps, metrics(0.8, 0.75)).lambda, LEAST);
        }
    }

    #[test]
    fn lambda_rises_while_the_margin_costs_too_much() {
        let steps = 1000;
        let mut auto = after(steps / 2, steps, metrics(0.8, 0.8));
        let low = auto.lambda;
        // The averages need about half of their time constant of 10 steps to notice.
        let mut costly = |count| {
            (0..count)
                .for_each(|_| auto.next(&metrics(0.8, 0.6), position(500, steps), BY_ACCURACY));
            auto
        };
        let turned = costly(20).lambda;
        let auto = costly(100);
        assert!(turned > low);
        assert!((auto.lambda / turned / (SPEED / 10.0).exp() - 1.0).abs() < 1e-9, "{auto:?}");
        assert_eq!(after(steps, steps, metrics(0.8, 0.6)).lambda, START);
    }

    #[test]
    fn a_single_bad_batch_does_not_turn_lambda() {
        let mut auto = after(100, 10_000, metrics(0.8, 0.8));
        let before = auto.lambda;
        auto.next(&metrics(0.8, 0.3), position(101, 10_000), BY_ACCURACY);
        assert!(auto.lambda < before);
    }

    /// A margin that always costs too much does not keep λ at its start: it is the bound, 1000 · 500^(−t/T).
    #[test]
    fn lambda_falls_to_its_end_where_the_margin_is_never_satisfied() {
        let rule = AutoRule { end: 2.0, ..BY_ACCURACY };
        let mut auto = AutoLambda::default();
        for done in 1..=300 {
            auto.next(&metrics(0.8, 0.1), position(done, 300), rule);
            let expected = match done {
                100 => 1000.0 / 500.0f64.cbrt(),
                150 => 1000.0 / 500.0f64.sqrt(),
                300 => 2.0,
                _ => continue,
            };
            assert!((auto.lambda / expected - 1.0).abs() < 1e-12, "{done}: {auto:?}");
        }
    }

    /// Images that are all fitted, with any margin, do not let λ fall far before the learning rate does.
    #[test]
    fn lambda_waits_at_its_floor_until_the_learning_rate_drops() {
        let rule = AutoRule { floor: 1.5, ..BY_ACCURACY };
        let margin = HeadMargin::Multiplied(Margin::new(3.0).unwrap());
        let mut auto = AutoLambda::default();
        for done in 1..=1200 {
            let relative_rate = match done {
                ..800 => 1.0,
                800..1000 => 0.1,
                _ => 0.01,
            };
            let least = rule.lower_bound(margin, relative_rate);
            auto.next(&metrics(1.0, 1.0), Position { done, steps: 1200, least }, rule);
            match done {
                799 => assert_eq!(auto.lambda, 3.0),
                // Afterwards it falls as fast as ever, to the next floor.
                801 => assert!(
                    (auto.lambda / (3.0 * (-2.0 * SPEED / 1200.0).exp()) - 1.0).abs() < 1e-9
                ),
                999 => assert!((auto.lambda - 0.3).abs() < 1e-12),
                1200 => assert!((auto.lambda - 0.03).abs() < 1e-12),
                _ => {}
            }
        }
    }

    #[test]
    fn a_larger_margin_has_a_larger_floor() {
        let rule = AutoRule { floor: 1.0, ..BY_ACCURACY };
        let bound = |m| rule.lower_bound(HeadMargin::Multiplied(Margin::new(m).unwrap()), 0.1);
        assert_eq!([1.0, 1.5, 2.0, 4.0].map(bound), [0.0, 0.05, 0.1, 3.0 * 0.1]);
    }

    /// With a constant rate the floor would keep λ above its end.
    #[test]
    fn lambda_reaches_its_end_if_the_learning_rate_never_drops() {
        let rule = AutoRule { end: 2.0, ..BY_ACCURACY };
        let mut auto = AutoLambda::default();
        for done in 1..=300 {
            auto.next(&metrics(1.0, 1.0), Position { done, steps: 300, least: 10.0 }, rule);
        }
        assert_eq!(auto.lambda, 2.0);
    }

    /// Records of runs in which λ never reached the bound are valid with and without it.
    #[test]
    fn the_bound_changes_nothing_where_lambda_is_below_it() {
        let (mut bounded, mut free) = (AutoLambda::default(), AutoLambda::default());
        for done in 1..=1000 {
            // For a while the margin costs too much, after λ has fallen far.
            let metrics = metrics(0.8, if (500..550).contains(&done) { 0.6 } else { 0.8 });
            bounded.next(&metrics, position(done, 1000), AutoRule { end: 2.0, ..BY_ACCURACY });
            free.next(&metrics, position(done, 1000), BY_ACCURACY);
            assert_eq!(bounded, free);
        }
    }

    proptest! {
        #[test]
        fn lambda_stays_in_its_range_and_depends_only_on_its_state(
            batches in prop::collection::vec((0.0f64..=1.0, 0.0f64..=1.0), 1..300),
            steps in prop_oneof![Just(1u64), Just(u64::MAX), 2u64..1000],
            end in LEAST..=START,
            least in 0.0..=START,
        ) {
            let rule = AutoRule { end, ..BY_ACCURACY };
            let mut auto = AutoLambda::default();
            let mut resumed = auto;
            for (done, (accuracy, share)) in (1..).zip(batches) {
                let batch = metrics(accuracy, accuracy * share);
                // As if the run were killed after every step.
                let text = toml::to_string(&resumed).unwrap();
                resumed = toml::from_str(&text).unwrap();
                let position = Position { done, steps, least };
                auto.next(&batch, position, rule);
                resumed.next(&batch, position, rule);
                prop_assert_eq!(auto, resumed);
                prop_assert!((LEAST..=START).contains(&auto.lambda));
            }
        }
    }
}

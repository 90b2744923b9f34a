//! Training that goes nowhere, noticed early and explained.

use crate::evaluate::Evaluation;

/// What a step was taken with: what can be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The learning rate.
    pub rate: f64,
    /// λ, if the loss has a margin.
    pub lambda: Option<f64>,
}

/// How training went wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Divergence {
    /// A number is not finite.
    #[error("training diverged at step {step}: {what}. {}", not_finite_remedy(settings))]
    NotFinite {
        /// The step.
        step: u64,
        /// Which number.
        what: String,
        /// What the step was taken with.
        settings: Settings,
    },
    /// The features have shrunk to nothing.
    #[error(
        "the features collapsed at step {step}: their mean norm is {norm:e}. {}",
        collapsed_remedy(settings)
    )]
    Collapsed {
        /// The step.
        step: u64,
        /// The mean norm of the features.
        norm: f64,
        /// What the step was taken with.
        settings: Settings,
    },
    /// The model has learnt nothing.
    #[error(
        "after {step} steps the held-out images are classified no better than by chance ({error:.1} % wrong). {}",
        chance_remedy(settings)
    )]
    Chance {
        /// The step.
        step: u64,
        /// The error on the held-out images, in percent.
        error: f64,
        /// What the step was taken with.
        settings: Settings,
    },
}

fn not_finite_remedy(Settings { rate, lambda }: &Settings) -> String {
    match lambda {
        Some(lambda) => format!(
            "Lower the learning rate (it is {rate}), or let λ fall more slowly or not below 1 (it is {lambda:.3}); `--on-divergence rollback` does the latter by itself"
        ),
        None => format!("Lower the learning rate (it is {rate})"),
    }
}

fn collapsed_remedy(Settings { rate, lambda }: &Settings) -> String {
    match lambda {
        Some(lambda) => format!(
            "The margin pushes them to zero before the classes are apart: let λ start larger or fall more slowly (it is {lambda:.3}); `--on-divergence rollback` does so by itself"
        ),
        None => format!("Lower the learning rate (it is {rate}) or the weight decay"),
    }
}

fn chance_remedy(Settings { rate, lambda }: &Settings) -> String {
    match lambda {
        Some(lambda) => format!(
            "Lower the learning rate (it is {rate}), or let λ start larger or fall more slowly (it is {lambda:.3}): margins of 2 and 4 have no slope at the right angles that training starts from"
        ),
        None => format!("Lower the learning rate (it is {rate}), or train longer"),
    }
}

/// Below this mean norm features are taken to have collapsed.
const COLLAPSED: f64 = 1e-5;
/// The share of the steps after which the model must do better than chance, and the fewest.
const PATIENCE: f64 = 0.25;
const FEWEST_STEPS: u64 = 20;
/// Better than chance is more than so many standard deviations above it.
const DEVIATIONS: f64 = 3.0;
/// With fewer held-out images than this, chance cannot be told from a slow start.
const ENOUGH_IMAGES: usize = 100;

/// Looks at the norm of the features.
pub(super) fn check_norm(step: u64, norm: f64, settings: Settings) -> Result<(), Divergence> {
    if norm < COLLAPSED { Err(Divergence::Collapsed { step, norm, settings }) } else { Ok(()) }
}

/// Looks at an evaluation on images of so many classes.
pub(super) fn check_evaluation(
    (step, steps): (u64, u64),
    &Evaluation { images, wrong, error, loss, .. }: &Evaluation,
    classes: usize,
    settings: Settings,
) -> Result<(), Divergence> {
    if !loss.is_finite() {
        let what = "the loss of the held-out images is not finite".into();
        return Err(Divergence::NotFinite { step, what, settings });
    }
    let (count, chance) = (images as f64, 1.0 / classes as f64);
    let by_chance = count * chance + DEVIATIONS * (count * chance * (1.0 - chance)).sqrt();
    let late = step >= FEWEST_STEPS && step as f64 >= PATIENCE * steps as f64;
    if classes > 1 && images >= ENOUGH_IMAGES && late && (images - wrong) as f64 <= by_chance {
        return Err(Divergence::Chance { step, error, settings });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { rate: 0.1, lambda: Some(5.0) };

    fn at_chance(step: u64, images: usize, right: usize, classes: usize) -> bool {
        let wrong = images - right;
        let error = 100.0 * wrong as f64 / images as f64;
        let found = Evaluation { images, wrong, error, loss: 1.0, angle: 90.0 };
        check_evaluation((step, 100), &found, classes, SETTINGS).is_err()
    }

    #[test]
    fn chance_is_noticed_only_when_there_was_time_to_learn() {
        assert!(!at_chance(10, 1000, 100, 10));
        let found = Evaluation { images: 1000, wrong: 900, error: 90.0, loss: 2.3, angle: 90.0 };
        assert!(check_evaluation((3, 3), &found, 10, SETTINGS).is_ok());
        assert!(at_chance(50, 1000, 100, 10));
        assert!(!at_chance(50, 1000, 200, 10));
        assert!(!at_chance(50, 1000, 1000, 1));
    }

    #[test]
    fn a_few_images_do_not_tell_chance() {
        assert!(!at_chance(50, 3, 0, 3));
    }

    #[test]
    fn of_many_classes_a_few_in_a_hundred_is_more_than_chance() {
        assert!(at_chance(50, 5000, 60, 100));
        assert!(!at_chance(50, 5000, 150, 100));
        assert!(at_chance(50, 5000, 1, 10_000));
        assert!(!at_chance(50, 5000, 20, 10_000));
    }

    #[test]
    fn a_loss_that_is_no_number_is_divergence_at_any_step() {
        let found = Evaluation { images: 10, wrong: 0, error: 0.0, loss: f64::NAN, angle: 0.0 };
        assert!(check_evaluation((1, 100), &found, 10, SETTINGS).is_err());
    }

    #[test]
    fn features_near_zero_have_collapsed() {
        assert!(check_norm(1, 1e-9, SETTINGS).is_err());
        assert!(check_norm(1, 0.1, SETTINGS).is_ok());
    }

    #[test]
    fn lambda_is_advised_only_where_there_is_a_margin() {
        let without = Settings { lambda: None, ..SETTINGS };
        for settings in [SETTINGS, without] {
            let all = [
                Divergence::NotFinite { step: 1, what: "x".into(), settings },
                Divergence::Collapsed { step: 1, norm: 0.0, settings },
                Divergence::Chance { step: 1, error: 90.0, settings },
            ];
            for divergence in all {
                assert_eq!(divergence.to_string().contains('λ'), settings.lambda.is_some());
            }
        }
    }
}

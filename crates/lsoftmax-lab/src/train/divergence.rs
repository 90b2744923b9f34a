//! Detection of diverged training, with advice.

use crate::evaluate::Evaluation;
use crate::number_text::{decimals_text, number_text};

/// The hyperparameters of a step that the log and the advice name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The learning rate.
    pub rate: f64,
    /// λ, if the loss has a margin.
    pub lambda: Option<f64>,
}

/// How training diverged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}. {}", self.finding(), self.advice())]
pub enum Divergence {
    /// A number is not finite.
    NotFinite {
        /// The step.
        step: u64,
        /// Which number.
        what: String,
        /// The hyperparameters of the step.
        settings: Settings,
    },
    /// The features have collapsed to zero.
    Collapsed {
        /// The step.
        step: u64,
        /// The mean norm of the features.
        norm: f64,
        /// The hyperparameters of the step.
        settings: Settings,
    },
    /// The model is no better than chance.
    Chance {
        /// The step.
        step: u64,
        /// The error rate on the held-out images, in percent.
        error: f64,
        /// The hyperparameters of the step.
        settings: Settings,
    },
}

impl Divergence {
    /// What was found, without advice.
    pub fn finding(&self) -> String {
        match self {
            Self::NotFinite { step, what, .. } => {
                format!("training diverged at step {step}: {what}")
            }
            Self::Collapsed { step, norm, .. } => {
                format!("the features collapsed at step {step}: their mean norm is {norm:e}")
            }
            Self::Chance { step, error, .. } => format!(
                "after {step} steps the accuracy on the held-out images is no better than chance ({error:.1} % wrong)"
            ),
        }
    }

    /// What to change.
    fn advice(&self) -> String {
        match self {
            Self::NotFinite { settings, .. } => not_finite_remedy(settings),
            Self::Collapsed { settings, .. } => collapsed_remedy(settings),
            Self::Chance { settings, .. } => chance_remedy(settings),
        }
    }
}

fn not_finite_remedy(Settings { rate, lambda }: &Settings) -> String {
    let rate = number_text(*rate);
    match lambda {
        Some(lambda) => format!(
            "Lower the learning rate (it is {rate}), or let λ decay more slowly or not below 1 (it is {}); `--on-divergence rollback` does the latter automatically",
            decimals_text(*lambda, 3)
        ),
        None => format!("Lower the learning rate (it is {rate})"),
    }
}

fn collapsed_remedy(Settings { rate, lambda }: &Settings) -> String {
    let rate = number_text(*rate);
    match lambda {
        Some(lambda) => format!(
            "The margin pushes them to zero before the classes are separated: let λ start larger or decay more slowly (it is {}); `--on-divergence rollback` does so automatically",
            decimals_text(*lambda, 3)
        ),
        None => format!("Lower the learning rate (it is {rate}) or the weight decay"),
    }
}

fn chance_remedy(Settings { rate, lambda }: &Settings) -> String {
    let rate = number_text(*rate);
    match lambda {
        Some(lambda) => format!(
            "Lower the learning rate (it is {rate}), or let λ start larger or decay more slowly (it is {}): at the start, with all angles near 90°, a margin is hard to learn",
            decimals_text(*lambda, 3)
        ),
        None => format!("Lower the learning rate (it is {rate}), or train longer"),
    }
}

/// Below this mean norm, features are considered collapsed.
const COLLAPSED: f64 = 1e-5;
/// The fraction of the steps after which the model must be better than chance.
const PATIENCE: f64 = 0.25;
/// The number of steps after which it must be at the earliest.
const FEWEST_STEPS: u64 = 20;
/// Better than chance means more than this many standard deviations above it.
const DEVIATIONS: f64 = 3.0;
/// With fewer held-out images than this, the check is skipped.
const ENOUGH_IMAGES: usize = 100;

/// Checks the mean norm of the features.
pub(super) fn check_norm(step: u64, norm: f64, settings: Settings) -> Result<(), Divergence> {
    if norm < COLLAPSED { Err(Divergence::Collapsed { step, norm, settings }) } else { Ok(()) }
}

/// Checks the loss of an evaluation.
pub(super) fn check_loss(
    step: u64,
    images: &str,
    loss: f64,
    settings: Settings,
) -> Result<(), Divergence> {
    if loss.is_finite() {
        return Ok(());
    }
    let what = format!("the loss of the {images} images is not finite");
    Err(Divergence::NotFinite { step, what, settings })
}

/// Checks an evaluation on images of `classes` classes.
pub(super) fn check_evaluation(
    (step, steps): (u64, u64),
    &Evaluation { images, wrong, error, loss, .. }: &Evaluation,
    classes: usize,
    settings: Settings,
) -> Result<(), Divergence> {
    check_loss(step, "held-out", loss, settings)?;
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
    fn chance_is_detected_only_after_enough_steps() {
        assert!(!at_chance(10, 1000, 100, 10));
        let found = Evaluation { images: 1000, wrong: 900, error: 90.0, loss: 2.3, angle: 90.0 };
        assert!(check_evaluation((3, 3), &found, 10, SETTINGS).is_ok());
        assert!(at_chance(50, 1000, 100, 10));
        assert!(!at_chance(50, 1000, 200, 10));
        assert!(!at_chance(50, 1000, 1000, 1));
    }

    #[test]
    fn too_few_images_are_not_checked() {
        assert!(!at_chance(50, 3, 0, 3));
    }

    #[test]
    fn with_many_classes_a_low_accuracy_is_better_than_chance() {
        assert!(at_chance(50, 5000, 60, 100));
        assert!(!at_chance(50, 5000, 150, 100));
        assert!(at_chance(50, 5000, 1, 10_000));
        assert!(!at_chance(50, 5000, 20, 10_000));
    }

    #[test]
    fn a_nan_loss_is_divergence_at_any_step() {
        let found = Evaluation { images: 10, wrong: 0, error: 0.0, loss: f64::NAN, angle: 0.0 };
        assert!(check_evaluation((1, 100), &found, 10, SETTINGS).is_err());
    }

    #[test]
    fn features_near_zero_have_collapsed() {
        assert!(check_norm(1, 1e-9, SETTINGS).is_err());
        assert!(check_norm(1, 0.1, SETTINGS).is_ok());
    }

    #[test]
    fn a_finding_has_no_advice() {
        let divergence = Divergence::Chance { step: 7, error: 90.0, settings: SETTINGS };
        let (finding, sentence) = (divergence.finding(), divergence.to_string());
        assert!(sentence.starts_with(&format!("{finding}. Lower")), "{sentence}");
        assert!(!finding.contains("rate") && !finding.contains('λ'), "{finding}");
    }

    #[test]
    fn huge_rates_have_an_exponent() {
        let settings = Settings { rate: 1e300, lambda: Some(1e200) };
        let what = "x".into();
        let sentence = Divergence::NotFinite { step: 1, what, settings }.to_string();
        assert!(
            sentence.contains("(it is 1e300)") && sentence.contains("(it is 1e200)"),
            "{sentence}"
        );
    }

    #[test]
    fn advice_mentions_lambda_only_with_a_margin() {
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

//! Training that goes nowhere, noticed early and explained.

use serde::{Deserialize, Serialize};

use crate::evaluate::Evaluation;

/// What to do when training goes nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDivergence {
    /// End the run and say why.
    #[default]
    Stop,
    /// Go back to the last good checkpoint and on with a larger λ.
    Rollback,
}

/// How training went wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Divergence {
    /// A number is not finite.
    #[error(
        "training diverged at step {step}: {what}. Lower the learning rate (it is {rate}), or let λ fall more slowly or not below 1 (it is {lambda:.3}); `--on-divergence rollback` does the latter by itself"
    )]
    NotFinite {
        /// The step.
        step: u64,
        /// Which number.
        what: String,
        /// The learning rate.
        rate: f64,
        /// λ.
        lambda: f64,
    },
    /// The features have shrunk to nothing.
    #[error(
        "the features collapsed at step {step}: their mean norm is {norm:e}. The margin pushes them to zero before the classes are apart: let λ start larger or fall more slowly (it is {lambda:.3}); `--on-divergence rollback` does so by itself"
    )]
    Collapsed {
        /// The step.
        step: u64,
        /// The mean norm of the features.
        norm: f64,
        /// λ.
        lambda: f64,
    },
    /// The model has learnt nothing.
    #[error(
        "after {step} steps the held-out images are classified no better than by chance ({error:.1} % wrong). Lower the learning rate (it is {rate}), or let λ start larger or fall more slowly (it is {lambda:.3}): margins of 2 and 4 have no slope at the right angles that training starts from"
    )]
    Chance {
        /// The step.
        step: u64,
        /// The error on the held-out images, in percent.
        error: f64,
        /// The learning rate.
        rate: f64,
        /// λ.
        lambda: f64,
    },
}

/// Below this mean norm features are taken to have collapsed.
const COLLAPSED: f64 = 1e-5;
/// The share of the steps after which the model must do better than chance.
const PATIENCE: f64 = 0.25;
/// Nearer to chance than this share of the way is chance.
const CHANCE: f64 = 0.97;
/// With fewer held-out images than this, chance cannot be told from a slow start.
const ENOUGH_IMAGES: usize = 100;

/// Looks at the norm of the features.
pub(super) fn check_norm(step: u64, norm: f64, lambda: f64) -> Result<(), Divergence> {
    if norm < COLLAPSED { Err(Divergence::Collapsed { step, norm, lambda }) } else { Ok(()) }
}

/// Looks at an evaluation on images of so many classes.
pub(super) fn check_error(
    (step, steps): (u64, u64),
    &Evaluation { images, error, .. }: &Evaluation,
    classes: usize,
    rate: f64,
    lambda: f64,
) -> Result<(), Divergence> {
    let chance = 100.0 * (1.0 - 1.0 / classes as f64);
    let late = step as f64 >= PATIENCE * steps as f64;
    if classes > 1 && images >= ENOUGH_IMAGES && late && error >= CHANCE * chance {
        return Err(Divergence::Chance { step, error, rate, lambda });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_chance(step: u64, images: usize, error: f64, classes: usize) -> bool {
        let found = Evaluation { images, wrong: 0, error, loss: 1.0, angle: 90.0 };
        check_error((step, 100), &found, classes, 0.1, 5.0).is_err()
    }

    #[test]
    fn chance_is_noticed_only_when_there_was_time_to_learn() {
        assert!(!at_chance(10, 1000, 90.0, 10));
        assert!(at_chance(50, 1000, 90.0, 10));
        assert!(!at_chance(50, 1000, 80.0, 10));
        assert!(!at_chance(50, 1000, 0.0, 1));
    }

    #[test]
    fn a_few_images_do_not_tell_chance() {
        assert!(!at_chance(50, 3, 100.0, 3));
    }

    #[test]
    fn features_near_zero_have_collapsed() {
        assert!(check_norm(1, 1e-9, 0.0).is_err());
        assert!(check_norm(1, 0.1, 0.0).is_ok());
    }
}

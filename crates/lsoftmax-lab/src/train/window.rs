//! What the steps between two lines of the log gave.

use serde::{Deserialize, Serialize};

use crate::run::Metric;

/// Sums since the last line of the log.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Window {
    steps: u64,
    loss: f64,
    accuracy: f64,
    angle: f64,
    feature_norm: f64,
}

/// What a step gave.
pub(super) struct Seen {
    pub loss: f64,
    pub accuracy: f64,
    pub angle: f64,
    pub feature_norm: f64,
}

impl Window {
    pub fn add(&mut self, seen: &Seen) {
        self.steps += 1;
        self.loss += seen.loss;
        self.accuracy += seen.accuracy;
        self.angle += seen.angle;
        self.feature_norm += seen.feature_norm;
    }

    pub fn metric(
        &self,
        step: u64,
        lambda: f64,
        learning_rate: f64,
        images_per_second: f64,
    ) -> Metric {
        let mean = |sum: f64| sum / self.steps as f64;
        Metric::Training {
            step,
            loss: mean(self.loss),
            accuracy: mean(self.accuracy),
            angle: mean(self.angle),
            feature_norm: mean(self.feature_norm),
            lambda,
            learning_rate,
            images_per_second,
        }
    }
}

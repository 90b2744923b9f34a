//! How long a training run will take on this machine.

use std::time::Duration;

use lsoftmax::Precision;
use lsoftmax_nn::NetworkConfig;

use crate::bench::{BenchError, Heap, TrainBench};
use crate::recipe::Recipe;

/// The most images of a measured step. With fewer, preparing the weights, which is done once per step, would count for too much.
const MOST_IMAGES: usize = 128;
/// The number of test images of the paper's data sets.
const TEST_IMAGES: usize = 10_000;

/// Estimates durations from one measured training step per network.
#[derive(Debug, Default)]
pub struct Estimator {
    measured: Vec<(NetworkConfig, Precision, Speed)>,
}

#[derive(Clone, Copy, Debug)]
struct Speed {
    training: f64,
    inference: f64,
}

struct Uncounted;

impl Heap for Uncounted {
    fn reset(&self) {}

    fn peak(&self) -> usize {
        0
    }
}

impl Estimator {
    /// The duration of a run from its first step to its record.
    ///
    /// # Errors
    /// When the network is invalid or the kernel path is unavailable.
    pub fn duration(&mut self, recipe: &Recipe) -> Result<Duration, BenchError> {
        let speed = self.speed(recipe)?;
        let trained = recipe.steps as f64 * (recipe.batch as u64 * recipe.accumulate) as f64;
        let evaluations = recipe.steps.div_ceil(recipe.evaluate_every) as f64;
        let test_curve = if recipe.test_curve { evaluations } else { 0.0 };
        let evaluated =
            evaluations * recipe.validation as f64 + (test_curve + 1.0) * TEST_IMAGES as f64;
        let seconds = trained / speed.training + evaluated / speed.inference;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    fn speed(&mut self, recipe: &Recipe) -> Result<Speed, BenchError> {
        let network = recipe.network.config()?;
        let known = self
            .measured
            .iter()
            .find(|(config, precision, _)| (config, *precision) == (&network, recipe.precision));
        if let Some((_, _, speed)) = known {
            return Ok(*speed);
        }
        let bench = TrainBench {
            name: recipe.name.clone(),
            network: network.clone(),
            classes: 10,
            batch: recipe.batch.min(MOST_IMAGES),
            head: recipe.head,
            precision: recipe.precision,
            composed: false,
            steps: 1,
            threads: None,
        };
        let timing = bench.run(&Uncounted)?;
        let speed = Speed {
            training: timing.images_per_second,
            inference: timing.inference_images_per_second,
        };
        self.measured.push((network, recipe.precision, speed));
        Ok(speed)
    }
}

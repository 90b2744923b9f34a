//! The records of a run: the log, TensorBoard's event files, and events for observers.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Event;
use super::divergence::Settings;
use crate::objective::BatchMetrics;
use crate::run::{METRICS, Metric, Metrics, RunDirectory, RunError, TENSORBOARD, TensorBoard};

/// Receives the events of a run as they happen.
pub(super) type Observer<'a> = dyn FnMut(Event<'_>) + 'a;

/// The log of a run, and the steps since its last line.
pub(super) struct Journal {
    metrics: Metrics,
    tensorboard: Option<TensorBoard>,
    /// The steps that the next line will average.
    pub pending: PendingSteps,
    /// The start time and number of images of the current throughput measurement.
    timed: (Instant, u64),
}

/// Sums over the steps since the last line of the log.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct PendingSteps {
    steps: u64,
    #[serde(flatten)]
    sums: BatchMetrics,
}

impl Journal {
    /// Opens the journal of a run at the end of its log.
    pub fn open(run: &RunDirectory) -> Result<Self, RunError> {
        Ok(Self {
            metrics: Metrics::open(&run.file(METRICS))?,
            tensorboard: None,
            pending: PendingSteps::default(),
            timed: (Instant::now(), 0),
        })
    }

    /// Enables event files, if `wanted` or if the run already has some.
    pub fn open_tensorboard(
        &mut self,
        run: &RunDirectory,
        step: u64,
        wanted: bool,
    ) -> Result<(), RunError> {
        let directory = run.file(TENSORBOARD);
        if wanted || directory.is_dir() {
            self.tensorboard = Some(TensorBoard::open(&directory, step)?);
        }
        Ok(())
    }

    /// Counts a step.
    pub fn add_step(&mut self, metrics: BatchMetrics, images: u64) {
        self.pending.steps += 1;
        self.pending.sums = self.pending.sums.plus(metrics, 1.0);
        self.timed.1 += images;
    }

    /// Restarts the throughput measurement, after work other than training.
    pub fn restart_clock(&mut self) {
        self.timed = (Instant::now(), 0);
    }

    /// Logs the mean of the steps since the last training line.
    pub fn log_training(
        &mut self,
        step: u64,
        Settings { lambda, rate: learning_rate }: Settings,
        observe: &mut Observer<'_>,
    ) -> Result<(), RunError> {
        let (since, images) = self.timed;
        let images_per_second = images as f64 / since.elapsed().as_secs_f64();
        let PendingSteps { steps, sums } = std::mem::take(&mut self.pending);
        let mean = |sum: f64| sum / steps as f64;
        let means = BatchMetrics {
            loss: mean(sums.loss),
            accuracy: mean(sums.accuracy),
            margin_accuracy: mean(sums.margin_accuracy),
            angle: mean(sums.angle),
            feature_norm: mean(sums.feature_norm),
        };
        let metric = Metric::Training { step, means, lambda, learning_rate, images_per_second };
        self.log(&metric, observe)
    }

    /// Adds a line to the log and the event files, and notifies the observer.
    pub fn log(&mut self, metric: &Metric, observe: &mut Observer<'_>) -> Result<(), RunError> {
        self.add(metric)?;
        if let Some(events) = &mut self.tensorboard {
            events.add(metric)?;
        }
        observe(Event::Logged(metric));
        Ok(())
    }

    /// Adds a line only to the log.
    pub fn add(&mut self, metric: &Metric) -> Result<(), RunError> {
        self.metrics.add(metric)
    }

    /// Truncates the log to its first `length` bytes, as it was at a checkpoint with these pending steps.
    /// Returns whether all of them were there.
    pub fn rewind(&mut self, length: u64, pending: PendingSteps) -> Result<bool, RunError> {
        self.pending = pending;
        Ok(self.metrics.truncate(length)? == length)
    }

    /// Syncs the log to disk and returns its length.
    pub fn sync(&mut self) -> Result<u64, RunError> {
        self.metrics.sync()
    }
}

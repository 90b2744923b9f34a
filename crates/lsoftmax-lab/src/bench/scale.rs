//! Benchmark of training steps that several ranks share.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor, TensorData};
use lsoftmax::Precision;
use lsoftmax_comm::{Communicator, Timed, Traffic, sum};
use lsoftmax_nn::{BatchShare, NetworkConfig, NetworkError};
use serde::Serialize;

use super::{BenchError, median};
use crate::batch::LabelledImages;
use crate::compute::Compute;
use crate::head::HeadSettings;
use crate::learner::{Learner, StepSettings};
use crate::model::Classifier;
use crate::objective::Objective;
use crate::optimiser::Optimiser;

const SEED: u64 = 2016;
const SETTINGS: StepSettings = StepSettings { lambda: 5.0, rate: 0.01, step: 0 };
/// The number of untimed warm-up steps.
const WARM_UP: usize = 2;
/// How often a small message is measured.
const SMALL: usize = 200;
/// Floats of the sum that shows the bandwidth, and how often it is measured.
const LARGE: usize = 4 << 20;
const LARGE_TIMES: usize = 5;

/// A benchmark of training steps on the ranks that mpirun has started; without it, on one.
#[derive(Clone, Debug)]
pub struct ScaleBench {
    /// The network's name, for the result.
    pub name: String,
    /// The network.
    pub network: NetworkConfig,
    /// The number of classes.
    pub classes: usize,
    /// The number of images per batch, of all ranks together.
    pub batch: usize,
    /// The head.
    pub head: HeadSettings,
    /// The precision of products.
    pub precision: Precision,
    /// The number of timed steps.
    pub steps: usize,
    /// The ranks.
    pub ranks: Arc<dyn Communicator>,
}

/// The result of a [`ScaleBench`], as rank 0 sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleTiming {
    /// The network's name.
    pub network: String,
    /// The number of ranks.
    pub ranks: usize,
    /// The number of threads of each rank.
    pub threads: usize,
    /// The number of images per batch, of all ranks together.
    pub batch: usize,
    /// The number of classes.
    pub classes: usize,
    /// The precision of products.
    pub precision: Precision,
    /// The kernel path.
    pub path: &'static str,
    /// The training throughput of all ranks in images per second, at the median.
    pub images_per_second: f64,
    /// The duration of every step in seconds.
    pub step_seconds: Vec<f64>,
    /// The time per step in which rank 0 communicated or waited for the others, at the median.
    pub communication_seconds: f64,
    /// Its share of the step.
    pub communication_share: f64,
    /// The number of times per step that all ranks exchange messages.
    pub exchanges_per_step: u64,
    /// The bytes that rank 0 sends per step.
    pub bytes_per_step: u64,
    /// The time of an exchange of one byte, at the median; 0 for one rank.
    pub latency_seconds: f64,
    /// The bytes of a sum over all ranks divided by its time, at the median, for 16 MiB; 0 for one rank.
    pub sum_bytes_per_second: f64,
    /// The number of timed steps.
    pub steps: usize,
}

impl ScaleBench {
    /// Runs the benchmark, on all ranks.
    ///
    /// # Errors
    /// When a size is zero or too small for the number of ranks, the network's layers do not fit together, or the
    /// kernel path is unavailable.
    pub fn run(&self) -> Result<ScaleTiming, BenchError> {
        let sizes = [("images", self.batch), ("steps", self.steps), ("classes", self.classes)];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(BenchError::Zero(name));
        }
        let timed = Arc::new(Timed::new(Arc::clone(&self.ranks)));
        let ranks: Arc<dyn Communicator> = timed.clone();
        let compute = Compute::new(Device::flex(), self.precision, false)?.with_ranks(ranks);
        let mut learner = self.learner(&compute)?;
        let batch = self.share(&compute)?;
        let (mut step_seconds, mut traffic) = (Vec::new(), Vec::new());
        for index in 0..WARM_UP + self.steps {
            // So that a step begins on all ranks at the same time.
            self.ranks.any(false);
            timed.take();
            let started = Instant::now();
            learner.step(std::iter::once(batch.clone()), SETTINGS)?;
            if index >= WARM_UP {
                step_seconds.push(started.elapsed().as_secs_f64());
                traffic.push(timed.take());
            }
        }
        let seconds: Vec<f64> = traffic.iter().map(|one| one.time.as_secs_f64()).collect();
        let (step, communication) = (median(&step_seconds), median(&seconds));
        let Traffic { calls, bytes, .. } = traffic[0];
        let (latency_seconds, sum_bytes_per_second) = self.messages();
        Ok(ScaleTiming {
            network: self.name.clone(),
            ranks: self.ranks.size(),
            threads: rayon::current_num_threads(),
            batch: self.batch,
            classes: self.classes,
            precision: self.precision,
            path: compute.path(),
            images_per_second: self.batch as f64 / step,
            step_seconds,
            communication_seconds: communication,
            communication_share: communication / step,
            exchanges_per_step: calls,
            bytes_per_step: bytes,
            latency_seconds,
            sum_bytes_per_second,
            steps: self.steps,
        })
    }

    fn learner(&self, compute: &Compute) -> Result<Learner, BenchError> {
        let device = compute.device.clone().autodiff();
        let (execution, head) = (compute.execution.clone(), self.head);
        let model =
            Classifier::from_seed(SEED, &self.network, self.classes, head, execution, &device)?;
        let network = model.network.with_ranks(Arc::clone(&compute.ranks));
        let model = Classifier { network, head: model.head };
        Ok(Learner::new(model, &Optimiser::default(), Objective::Head))
    }

    /// Random images of this rank, and the labels of all.
    fn share(&self, compute: &Compute) -> Result<LabelledImages, BenchError> {
        let share = BatchShare::new(Arc::clone(&compute.ranks), self.batch);
        let share = share.map_err(NetworkError::from)?;
        let device = compute.device.clone().autodiff();
        let [channels, height, width] = self.network.input;
        let shape = [share.images().len(), channels, height, width];
        let images = Tensor::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let labels: Vec<_> = (0..self.batch).map(|image| (image % self.classes) as i64).collect();
        let labels = Tensor::from_data(TensorData::new(labels, [self.batch]), &device);
        Ok(LabelledImages { images, labels })
    }

    /// The time of a small exchange, and the speed of a large sum.
    fn messages(&self) -> (f64, f64) {
        let ranks = self.ranks.size();
        if ranks == 1 {
            return (0.0, 0.0);
        }
        let timed = |times: usize, work: &dyn Fn()| {
            let time = |_| {
                let started = Instant::now();
                work();
                started.elapsed().as_secs_f64()
            };
            median(&(0..times).map(time).collect::<Vec<_>>())
        };
        let latency = timed(SMALL, &|| {
            self.ranks.any(false);
        });
        // One node per rank of a tree as deep as it takes, in the order of the ranks.
        let tree = lsoftmax_comm::Tree { blocks: ranks, sections: 1 };
        let ids =
            |rank: usize| tree.nodes(&(rank..rank + 1), 0).iter().map(|node| node.id).collect();
        let ids: Vec<Vec<u64>> = (0..ranks).map(ids).collect();
        let mine = vec![1.0; LARGE];
        let large = timed(LARGE_TIMES, &|| {
            sum(&*self.ranks, &mine, LARGE, &ids);
        });
        (latency, (4 * LARGE) as f64 / large)
    }
}

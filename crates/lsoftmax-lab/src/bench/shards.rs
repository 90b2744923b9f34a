//! Benchmark of a head that is divided over ranks by class: what each holds, and the time of a step.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::{LambdaSchedule, Precision, SampleRate};
use lsoftmax_comm::{Communicator, Timed, Traffic};
use lsoftmax_kernels::Engine;
use serde::Serialize;

use super::{BenchError, can_allocate, median};
use crate::head::{HeadKind, HeadMargin, HeadSettings};
use crate::optimiser::Optimiser;
use crate::sharded::TrainedShards;

const SEED: u64 = 2016;
const RATE: f64 = 0.01;

/// A benchmark of training steps of a head alone, with SGD and momentum, on the ranks that mpirun has started.
#[derive(Clone, Debug)]
pub struct ShardBench {
    /// The number of samples per batch.
    pub samples: usize,
    /// The number of features per sample.
    pub features: usize,
    /// The number of classes.
    pub classes: usize,
    /// The head.
    pub head: HeadSettings,
    /// λ.
    pub lambda: f64,
    /// The precision of products.
    pub precision: Precision,
    /// The number of timed steps, after one that is not.
    pub steps: usize,
    /// The ranks.
    pub ranks: Arc<dyn Communicator>,
}

/// The result of a [`ShardBench`], as rank 0 sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ShardTiming {
    /// The median time of a step: forward and backward pass and update.
    pub milliseconds: f64,
    /// The duration of every step in seconds.
    pub step_seconds: Vec<f64>,
    /// The time in which the initial weights were drawn.
    pub initial_seconds: f64,
    /// The time per step in which rank 0 communicated or waited for the others, at the median.
    pub communication_seconds: f64,
    /// The number of times per step that all ranks exchange messages.
    pub exchanges_per_step: u64,
    /// The bytes that rank 0 sends per step.
    pub bytes_per_step: u64,
    /// What each rank holds.
    pub holds: Vec<RankHolds>,
    /// The number of samples per batch.
    pub samples: usize,
    /// The number of features per sample.
    pub features: usize,
    /// The number of classes.
    pub classes: usize,
    /// The number of shards.
    pub shards: usize,
    /// The head's name.
    pub head: HeadKind,
    /// The margin m.
    pub margin: HeadMargin,
    /// λ.
    pub lambda: f64,
    /// The share of the classes that a step uses besides those of its samples.
    pub sample_rate: SampleRate,
    /// The precision of products.
    pub precision: Precision,
    /// The kernel path.
    pub path: &'static str,
    /// The number of ranks.
    pub ranks: usize,
    /// The number of threads of each rank.
    pub threads: usize,
    /// The number of timed steps.
    pub steps: usize,
}

/// What a rank holds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RankHolds {
    /// The number of its classes.
    pub classes: u64,
    /// The bytes of their weights; the momentum has as many.
    pub weight_bytes: u64,
    /// The most memory that the process ever had, as the system counts it; 0 where it does not.
    pub peak_resident_bytes: u64,
}

impl ShardBench {
    /// Runs the benchmark, on all ranks.
    ///
    /// # Errors
    /// When a size is zero or too large, λ is invalid, there are more ranks than shards, or the requested kernel path
    /// is unavailable.
    pub fn run(&self) -> Result<ShardTiming, BenchError> {
        let Self { samples, features, classes, .. } = *self;
        let sizes = [
            ("samples", samples),
            ("features", features),
            ("classes", classes),
            ("steps", self.steps),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(BenchError::Zero(name));
        }
        LambdaSchedule::constant(self.lambda)?;
        // Weights and momentum of a rank.
        let numbers = classes.div_ceil(self.ranks.size()).checked_mul(features);
        let bytes = numbers.and_then(|numbers| numbers.checked_mul(2 * size_of::<f32>()));
        if !bytes.is_some_and(can_allocate) || u32::try_from(classes).is_err() {
            return Err(BenchError::Memory { samples, features, classes });
        }
        let engine = Engine::new(self.precision)?;
        let timed = Arc::new(Timed::new(Arc::clone(&self.ranks)));
        let ranks: Arc<dyn Communicator> = timed.clone();
        let device = Device::flex().autodiff();
        let started = Instant::now();
        let head = self.head.sharded(SEED, (features, classes), engine, ranks, &device)?;
        let initial_seconds = started.elapsed().as_secs_f64();
        let mut shards = TrainedShards::new(head, &Optimiser::default(), self.head.is_sampled());
        let (x, y) = self.batch(&device);
        let (mut step_seconds, mut traffic) = (Vec::new(), Vec::new());
        for index in 0..=self.steps {
            // So that a step begins on all ranks at the same time.
            self.ranks.any(false);
            timed.take();
            let started = Instant::now();
            let seed = self.head.is_sampled().then_some(SEED);
            let output = shards.forward(x.clone(), y.clone(), self.lambda, seed, index as u64)?;
            shards.apply(output, 1.0, RATE);
            if index > 0 {
                step_seconds.push(started.elapsed().as_secs_f64());
                traffic.push(timed.take());
            }
        }
        let seconds: Vec<f64> = traffic.iter().map(|one| one.time.as_secs_f64()).collect();
        let Traffic { calls, bytes, .. } = traffic[0];
        Ok(ShardTiming {
            milliseconds: 1e3 * median(&step_seconds),
            step_seconds,
            initial_seconds,
            communication_seconds: median(&seconds),
            exchanges_per_step: calls,
            bytes_per_step: bytes,
            holds: self.holds(&shards),
            samples,
            features,
            classes,
            shards: shards.head.layout().count(),
            head: self.head.kind(),
            margin: self.head.margin(),
            lambda: self.lambda,
            sample_rate: shards.head.sample_rate,
            precision: self.precision,
            path: engine.path().name(),
            ranks: self.ranks.size(),
            threads: rayon::current_num_threads(),
            steps: self.steps,
        })
    }

    /// Features and labels, the same on every rank.
    fn batch(&self, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let shape = [self.samples, self.features];
        // Any numbers of about the size of features.
        let number =
            |index: usize| ((index as f64 * 0.618_033_988_749_895).fract() as f32 - 0.5) * 2.0;
        let numbers: Vec<f32> = (0..shape[0] * shape[1]).map(number).collect();
        let x = Tensor::<2>::from_data(TensorData::new(numbers, shape), device).require_grad();
        let class = |sample: usize| (sample * self.classes / self.samples) as i64;
        let labels: Vec<i64> = (0..self.samples).map(class).collect();
        (x, Tensor::from_data(TensorData::new(labels, [self.samples]), device))
    }

    fn holds(&self, shards: &TrainedShards) -> Vec<RankHolds> {
        let rows = |shard: &lsoftmax::HeadShard| shard.weight.dims()[0] as u64;
        let classes: u64 = shards.head.shards.iter().map(rows).sum();
        let mine = [classes, 4 * classes * self.features as u64, peak_resident_bytes()];
        let bytes: Vec<u8> = mine.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.ranks.gather(&bytes);
        let holds = |bytes: &Vec<u8>| {
            let number = |index: usize| u64::from_le_bytes(bytes.as_chunks().0[index]);
            let (classes, weight_bytes, peak_resident_bytes) = (number(0), number(1), number(2));
            RankHolds { classes, weight_bytes, peak_resident_bytes }
        };
        all.iter().map(holds).collect()
    }
}

/// The most memory that this process ever had, where the system is Linux.
fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kilobytes.unwrap_or(0)
}

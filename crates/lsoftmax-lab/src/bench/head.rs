//! Benchmark of the head as called through Burn.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use lsoftmax::{
    HeadError, LSoftmaxConfig, LambdaSchedule, MarginHead, Precision, SampleRate, SampledHead,
};
use lsoftmax_kernels::Engine;
use serde::Serialize;

use super::{BenchError, Heap, can_allocate, median, on_threads};
use crate::head::{HeadKind, HeadMargin, HeadSettings};

/// Untimed warm-up steps: at most this many, and none is started after this time.
const WARM_UP: (usize, Duration) = (3, Duration::from_millis(500));

/// The minimum number of timed steps.
const LEAST_STEPS: usize = 3;

const SEED: u64 = 2016;

/// A benchmark of a forward and a backward pass with gradients of features and weights.
///
/// ```
/// use lsoftmax::{Margin, Precision};
/// use lsoftmax_lab::bench::{HeadBench, Heap, Length};
/// use lsoftmax_lab::head::HeadSettings;
///
/// struct Uncounted;
/// impl Heap for Uncounted {
///     fn reset(&self) {}
///     fn peak(&self) -> usize {
///         0
///     }
/// }
/// let bench = HeadBench {
///     samples: 8,
///     features: 16,
///     classes: 10,
///     head: HeadSettings::l_softmax(Margin::ONE),
///     lambda: 0.0,
///     precision: Precision::F32,
///     bias: false,
///     length: Length::Steps(3),
///     threads: Some(1),
/// };
/// assert_eq!(bench.run(&Uncounted)?.steps, 3);
/// # Ok::<(), lsoftmax_lab::bench::BenchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeadBench {
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
    /// The precision of matrix products.
    pub precision: Precision,
    /// Whether the head has a bias.
    pub bias: bool,
    /// How long to measure.
    pub length: Length,
    /// The number of threads; by default that of rayon's global pool.
    pub threads: Option<usize>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// For a number of steps.
    Steps(usize),
    /// For a duration, and at least three steps.
    Time(Duration),
}

/// The result of a [`HeadBench`].
#[derive(Clone, Debug, Serialize)]
pub struct HeadTiming {
    /// The median time of a step.
    pub milliseconds: f64,
    /// The time of the fastest step.
    pub fastest_milliseconds: f64,
    /// The number of timed steps.
    pub steps: usize,
    /// The throughput at the median in GFLOP/s, counting only the three products of
    /// samples x features x classes, those that a step uses.
    pub gflops: f64,
    /// The peak heap use during the steps, excluding features, weights and their gradients.
    pub peak_bytes: usize,
    /// The number of samples per batch.
    pub samples: usize,
    /// The number of features per sample.
    pub features: usize,
    /// The number of classes.
    pub classes: usize,
    /// The head's name.
    pub head: HeadKind,
    /// The margin m.
    pub margin: HeadMargin,
    /// λ.
    pub lambda: f64,
    /// The share of the classes that a step uses besides those of its samples.
    pub sample_rate: SampleRate,
    /// Whether the head has a bias.
    pub bias: bool,
    /// The precision of matrix products.
    pub precision: Precision,
    /// The kernel path.
    pub kernel: &'static str,
    /// The number of threads.
    pub threads: usize,
}

impl HeadBench {
    /// Runs the benchmark.
    ///
    /// # Errors
    /// When a size is zero or too large, λ is invalid, or the requested threads or kernel path are
    /// unavailable.
    pub fn run(&self, heap: &impl Heap) -> Result<HeadTiming, BenchError> {
        self.check()?;
        on_threads(self.threads, || self.measure(heap))
    }

    fn check(&self) -> Result<(), BenchError> {
        let steps = match self.length {
            Length::Steps(steps) => steps,
            Length::Time(_) => LEAST_STEPS,
        };
        let Self { samples, features, classes, .. } = *self;
        let threads = self.threads.unwrap_or(1);
        let sizes = [
            ("samples", samples),
            ("features", features),
            ("classes", classes),
            ("steps", steps),
            ("threads", threads),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(BenchError::Zero(name));
        }
        LambdaSchedule::constant(self.lambda)?;
        let too_large = BenchError::Memory { samples, features, classes };
        match self.parameters_and_gradients() {
            Some(bytes) if can_allocate(bytes) => Ok(()),
            _ => Err(too_large),
        }
    }

    /// The approximate size in bytes of x, W, their gradients (with padded rows) and the per-sample
    /// state; `None` on overflow.
    fn parameters_and_gradients(&self) -> Option<usize> {
        let rows = self.samples.checked_add(self.classes)?;
        let width = self.features.checked_next_multiple_of(32)?;
        let matrices = rows.checked_mul(width)?.checked_mul(2 * size_of::<f32>())?;
        matrices.checked_add(self.samples.checked_mul(256)?)
    }

    fn measure(&self, heap: &impl Heap) -> Result<HeadTiming, BenchError> {
        let kernel = Engine::new(self.precision)?.path().name();
        let device = Device::flex().autodiff();
        device.seed(SEED);
        let head = self.build(&device);
        let normal = Distribution::Normal(0.0, 1.0);
        let x = Tensor::<2>::random([self.samples, self.features], normal, &device).require_grad();
        let y = self.labels(&device);
        // Every step of a sampled head has the same number of classes.
        let classes = if head.sample_rate == SampleRate::ALL {
            self.classes
        } else {
            head.sampled(y.clone(), SEED, 0)?.classes.dims()[0]
        };
        let gradients = (self.samples + classes) * self.features * size_of::<f32>();

        heap.reset();
        let started = Instant::now();
        for _ in 0..WARM_UP.0 {
            self.step(&head, &x, &y, 0)?;
            if started.elapsed() > WARM_UP.1 {
                break;
            }
        }
        let mut times = Vec::new();
        let started = Instant::now();
        while self.needs_more_steps(times.len(), started) {
            let step = Instant::now();
            self.step(&head, &x, &y, times.len() as u64)?;
            times.push(step.elapsed().as_secs_f64());
        }
        // Over all steps, including warm-up, so that buffers reused between steps are counted.
        let peak_bytes = heap.peak().saturating_sub(gradients);
        let (fastest, median) = (times.iter().copied().fold(f64::MAX, f64::min), median(&times));
        let work = 3.0 * 2.0 * self.samples as f64 * self.features as f64 * classes as f64;
        Ok(HeadTiming {
            milliseconds: median * 1e3,
            fastest_milliseconds: fastest * 1e3,
            steps: times.len(),
            gflops: work / median / 1e9,
            peak_bytes,
            samples: self.samples,
            features: self.features,
            classes: self.classes,
            head: self.head.kind(),
            margin: self.head.margin(),
            lambda: self.lambda,
            sample_rate: head.sample_rate,
            bias: self.bias,
            precision: self.precision,
            kernel,
            threads: rayon::current_num_threads(),
        })
    }

    fn build(&self, device: &Device) -> MarginHead<HeadMargin> {
        let config = LSoftmaxConfig::new(self.features, self.classes);
        self.head.apply(config.with_bias(self.bias).with_precision(self.precision).init(device))
    }

    /// Labels spread evenly over all classes.
    fn labels(&self, device: &Device) -> Tensor<1, Int> {
        let (samples, classes) = (self.samples as u128, self.classes as u128);
        let labels: Vec<i64> = (0..samples).map(|i| (i * classes / samples) as i64).collect();
        Tensor::from_data(TensorData::new(labels, [self.samples]), device)
    }

    fn step(
        &self,
        head: &MarginHead<HeadMargin>,
        x: &Tensor<2>,
        y: &Tensor<1, Int>,
        number: u64,
    ) -> Result<(), HeadError> {
        if head.sample_rate == SampleRate::ALL && self.precision != Precision::Bf16Weights {
            return self.pass(head, x, y);
        }
        if head.sample_rate == SampleRate::ALL {
            // The copy of the weights is made in every step, as it is after an optimiser's.
            let head = head.clone().with_execution(head.execution.clone());
            return self.pass(&head, x, y);
        }
        let SampledHead { head, labels, .. } = head.sampled(y.clone(), SEED, number)?;
        self.pass(&head, x, &labels)
    }

    fn pass(
        &self,
        head: &MarginHead<HeadMargin>,
        x: &Tensor<2>,
        y: &Tensor<1, Int>,
    ) -> Result<(), HeadError> {
        let out = head.forward(x.clone(), y.clone(), self.lambda)?;
        let gradients = out.loss.backward();
        black_box((x.grad(&gradients), head.weight.val().grad(&gradients)));
        Ok(())
    }

    fn needs_more_steps(&self, steps: usize, started: Instant) -> bool {
        match self.length {
            Length::Steps(all) => steps < all,
            Length::Time(time) => steps < LEAST_STEPS || started.elapsed() < time,
        }
    }
}

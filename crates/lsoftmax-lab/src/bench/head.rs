//! The head through Burn, as its user would run it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use lsoftmax::{HeadError, LSoftmax, LSoftmaxConfig, LambdaSchedule, Margin, Precision};
use lsoftmax_kernels::Engine;
use serde::Serialize;

use super::{BenchError, Heap, can_be_had, median, on_threads};

/// Untimed steps come first: at most this many, and none is begun after this time.
const WARM_UP: (usize, Duration) = (3, Duration::from_millis(500));

/// The fewest steps that have a median worth the name.
const LEAST_STEPS: usize = 3;

const SEED: u64 = 2016;

/// What to measure: a forward and a backward pass with gradients of features and weights.
///
/// ```
/// use lsoftmax::{Margin, Precision};
/// use lsoftmax_lab::bench::{HeadBench, Heap, Length};
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
///     margin: Margin::ONE,
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
    /// Samples of a batch.
    pub samples: usize,
    /// Features of a sample.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// The margin m.
    pub margin: Margin,
    /// λ.
    pub lambda: f64,
    /// The precision of matrix products.
    pub precision: Precision,
    /// Whether the head has a bias.
    pub bias: bool,
    /// How long to measure.
    pub length: Length,
    /// Threads; rayon's own choice unless said otherwise.
    pub threads: Option<usize>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many steps.
    Steps(usize),
    /// So much time, and at least three steps.
    Time(Duration),
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct HeadTiming {
    /// The median time of a step.
    pub milliseconds: f64,
    /// The time of the fastest step.
    pub fastest_milliseconds: f64,
    /// Timed steps.
    pub steps: usize,
    /// Billions of operations a second at the median, counting the three products of
    /// samples x features x classes and nothing else.
    pub gflops: f64,
    /// The most heap in use during the steps, above features, weights and their gradients.
    pub peak_bytes: usize,
    /// Samples of a batch.
    pub samples: usize,
    /// Features of a sample.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// The margin m.
    pub margin: Margin,
    /// λ.
    pub lambda: f64,
    /// Whether the head has a bias.
    pub bias: bool,
    /// The precision of matrix products.
    pub precision: Precision,
    /// The kernel path taken.
    pub kernel: &'static str,
    /// Threads.
    pub threads: usize,
}

impl HeadBench {
    /// Runs the benchmark.
    ///
    /// # Errors
    /// When a size is zero or too large, λ is none, or the threads or the kernel path asked for are
    /// not to be had.
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
            Some(bytes) if can_be_had(bytes) => Ok(()),
            _ => Err(too_large),
        }
    }

    /// About the bytes of x, W and their gradients and of what is kept for a sample, if that is a
    /// number. Narrow features are padded.
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
        let head = self.head(&device);
        let normal = Distribution::Normal(0.0, 1.0);
        let x = Tensor::<2>::random([self.samples, self.features], normal, &device).require_grad();
        let y = self.labels(&device);
        let gradients = (self.samples + self.classes) * self.features * size_of::<f32>();

        heap.reset();
        let begun = Instant::now();
        for _ in 0..WARM_UP.0 {
            self.step(&head, &x, &y)?;
            if begun.elapsed() > WARM_UP.1 {
                break;
            }
        }
        let mut times = Vec::new();
        let begun = Instant::now();
        while self.goes_on(times.len(), begun) {
            let step = Instant::now();
            self.step(&head, &x, &y)?;
            times.push(step.elapsed().as_secs_f64());
        }
        // Of all steps together, the first included: what they keep for each other counts.
        let peak_bytes = heap.peak().saturating_sub(gradients);
        let (fastest, median) = (times.iter().copied().fold(f64::MAX, f64::min), median(&times));
        let work = 3.0 * 2.0 * self.samples as f64 * self.features as f64 * self.classes as f64;
        Ok(HeadTiming {
            milliseconds: median * 1e3,
            fastest_milliseconds: fastest * 1e3,
            steps: times.len(),
            gflops: work / median / 1e9,
            peak_bytes,
            samples: self.samples,
            features: self.features,
            classes: self.classes,
            margin: self.margin,
            lambda: self.lambda,
            bias: self.bias,
            precision: self.precision,
            kernel,
            threads: rayon::current_num_threads(),
        })
    }

    fn head(&self, device: &Device) -> LSoftmax {
        let mut config = LSoftmaxConfig::new(self.features, self.classes);
        config.margin = self.margin;
        config.with_bias(self.bias).with_precision(self.precision).init(device)
    }

    /// Labels spread evenly over all classes.
    fn labels(&self, device: &Device) -> Tensor<1, Int> {
        let (samples, classes) = (self.samples as u128, self.classes as u128);
        let labels: Vec<i64> = (0..samples).map(|i| (i * classes / samples) as i64).collect();
        Tensor::from_data(TensorData::new(labels, [self.samples]), device)
    }

    fn step(&self, head: &LSoftmax, x: &Tensor<2>, y: &Tensor<1, Int>) -> Result<(), HeadError> {
        let out = head.forward(x.clone(), y.clone(), self.lambda)?;
        let gradients = out.loss.backward();
        black_box((x.grad(&gradients), head.weight.val().grad(&gradients)));
        Ok(())
    }

    fn goes_on(&self, steps: usize, begun: Instant) -> bool {
        match self.length {
            Length::Steps(all) => steps < all,
            Length::Time(time) => steps < LEAST_STEPS || begun.elapsed() < time,
        }
    }
}

//! Benchmark of training steps of the paper's networks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use lsoftmax::Precision;
use lsoftmax_kernels::Engine;
use lsoftmax_nn::NetworkConfig;
use serde::Serialize;

use super::{BenchError, Heap, can_allocate, median};
use crate::batch::LabelledImages;
use crate::compute::Compute;
use crate::head::{HeadKind, HeadMargin, HeadSettings};
use crate::learner::{Learner, StepSettings};
use crate::model::Classifier;
use crate::objective::Objective;
use crate::optimiser::Optimiser;
use lsoftmax_data::{Augment, Images, Loader, Mean, Sampling, Shape};

const SEED: u64 = 2016;
/// The optimiser works as ever, but the weights stay as they are: nothing can be learned from random images, and
/// batch norm of a single image's features, which have no variance, would make them diverge in bf16.
const LEARNING_RATE: f64 = 0.0;
const LAMBDA: f64 = 5.0;
/// The number of untimed warm-up steps, in which buffers are allocated and code is paged in.
const WARM_UP: usize = 2;
/// The number of images in the benchmark of the loader, more than fit into a cache.
const LOADED: usize = 4096;
/// The duration of the benchmark of the loader.
const LOADING: Duration = Duration::from_millis(200);

/// A benchmark of training steps, the same as in a training run, and of inference.
#[derive(Clone, Debug)]
pub struct TrainBench {
    /// The network's name, for the result.
    pub name: String,
    /// The network.
    pub network: NetworkConfig,
    /// The number of classes.
    pub classes: usize,
    /// The number of images per batch.
    pub batch: usize,
    /// The head.
    pub head: HeadSettings,
    /// The precision of products.
    pub precision: Precision,
    /// Whether to use Burn's own operations instead of the kernels.
    pub composed: bool,
    /// The number of timed steps.
    pub steps: usize,
    /// The number of threads; by default that of rayon's global pool.
    pub threads: Option<usize>,
}

/// The result of a [`TrainBench`].
#[derive(Clone, Debug, Serialize)]
pub struct TrainTiming {
    /// The network's name.
    pub network: String,
    /// The training throughput in images per second, at the median.
    pub images_per_second: f64,
    /// The duration of every step in seconds.
    pub step_seconds: Vec<f64>,
    /// The inference throughput (features only) in images per second, at the median.
    pub inference_images_per_second: f64,
    /// The throughput of one loader thread in images per second, with the paper's CIFAR10+ augmentation.
    /// Training waits for the loader only if this is less than `images_per_second`.
    pub loader_images_per_second: f64,
    /// The work per image of a training step in GFLOP: three products per layer, two in the first layer,
    /// whose input needs no gradient. Padding is counted.
    pub gflop_per_image: f64,
    /// The training throughput in GFLOP/s, at the median.
    pub gflops: f64,
    /// The peak throughput of the innermost loop in GFLOP/s, measured in this run.
    pub peak_gflops: f64,
    /// The peak heap use during the steps.
    pub peak_bytes: usize,
    /// The number of parameters of network and head.
    pub parameters: usize,
    /// The number of classes.
    pub classes: usize,
    /// The number of images per batch.
    pub batch: usize,
    /// The head's name.
    pub head: HeadKind,
    /// The margin m.
    pub margin: HeadMargin,
    /// The precision of products.
    pub precision: Precision,
    /// The kernel path; "burn" for Burn's own operations.
    pub path: &'static str,
    /// The number of threads.
    pub threads: usize,
    /// The number of timed steps.
    pub steps: usize,
}

impl TrainBench {
    /// Runs the benchmark.
    ///
    /// # Errors
    /// When a size is zero or too large, the network's layers do not fit together, or the requested
    /// threads or kernel path are unavailable.
    pub fn run(&self, heap: &impl Heap) -> Result<TrainTiming, BenchError> {
        let sizes = [("images", self.batch), ("steps", self.steps), ("classes", self.classes)];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(BenchError::Zero(name));
        }
        self.check_memory()?;
        super::on_threads(self.threads, || self.measure(heap))
    }

    /// Checks that a batch fits into memory; the output of every convolution is kept.
    fn check_memory(&self) -> Result<(), BenchError> {
        let stack = self.network.stack()?;
        let outputs =
            (0..stack.units().len()).map(|unit| stack.convolved(unit).iter().product::<usize>());
        let image: usize = outputs.sum::<usize>() + stack.input().iter().product::<usize>();
        let bytes = image.checked_mul(self.batch).and_then(|numbers| numbers.checked_mul(6));
        match bytes {
            Some(bytes) if can_allocate(bytes) => Ok(()),
            _ => Err(BenchError::Batch { network: self.name.clone(), batch: self.batch }),
        }
    }

    fn measure(&self, heap: &impl Heap) -> Result<TrainTiming, BenchError> {
        let engine = Engine::new(self.precision)?;
        let peak_gflops = lsoftmax_kernels::peak_gflops(engine);
        let compute = Compute::new(Device::flex(), self.precision, self.composed)?;
        let device = compute.device.clone().autodiff();
        device.seed(SEED);
        heap.reset();
        let mut learner =
            Learner::new(self.classifier(&compute)?, &Optimiser::default(), Objective::Head);
        let batch = self.batch(&device);
        let settings = StepSettings { lambda: LAMBDA, rate: LEARNING_RATE, step: 0 };
        let mut step_seconds = Vec::with_capacity(self.steps);
        for index in 0..WARM_UP + self.steps {
            let batch = batch.clone();
            let started = Instant::now();
            black_box(learner.step(std::iter::once(batch), settings)?);
            if index >= WARM_UP {
                step_seconds.push(started.elapsed().as_secs_f64());
            }
        }
        let peak_bytes = heap.peak();
        let model = learner.model().clone().valid();
        let parameters = model.num_params();
        let inference_seconds = self.infer(&model, &batch.images.inner())?;

        let stack = self.network.stack()?;
        let products = (0..stack.units().len())
            .map(|unit| stack.multiply_adds(unit) as f64 * if unit == 0 { 2.0 } else { 3.0 });
        let head = (3 * self.network.features.size * self.classes) as f64;
        let gflop_per_image = 2.0 * (products.sum::<f64>() + head) / 1e9;
        let images_per_second = self.batch as f64 / median(&step_seconds);
        Ok(TrainTiming {
            network: self.name.clone(),
            images_per_second,
            step_seconds,
            inference_images_per_second: self.batch as f64 / inference_seconds,
            loader_images_per_second: self.load(),
            gflop_per_image,
            gflops: gflop_per_image * images_per_second,
            peak_gflops,
            peak_bytes,
            parameters,
            classes: self.classes,
            batch: self.batch,
            head: self.head.kind(),
            margin: self.head.margin(),
            precision: self.precision,
            path: compute.path(),
            threads: rayon::current_num_threads(),
            steps: self.steps,
        })
    }

    fn classifier(&self, compute: &Compute) -> Result<Classifier, BenchError> {
        let Self { network, classes, head, .. } = self;
        let execution = compute.execution.clone();
        Ok(Classifier::new(
            network,
            *classes,
            *head,
            execution,
            &compute.device.clone().autodiff(),
        )?)
    }

    /// Random images, and labels spread over all classes.
    fn batch(&self, device: &Device) -> LabelledImages {
        let [channels, height, width] = self.network.input;
        let shape = [self.batch, channels, height, width];
        let images = Tensor::random(shape, Distribution::Normal(0.0, 1.0), device);
        let label = |image: usize| (image % self.classes) as i64;
        let labels: Vec<_> = (0..self.batch).map(label).collect();
        let labels = Tensor::from_data(TensorData::new(labels, [self.batch]), device);
        LabelledImages { images, labels }
    }

    /// The median duration of inference on a batch, in seconds.
    fn infer(&self, model: &Classifier, images: &Tensor<4>) -> Result<f64, BenchError> {
        let mut seconds = Vec::with_capacity(self.steps);
        for index in 0..1 + self.steps {
            let started = Instant::now();
            black_box(model.network.forward(images.clone())?.into_data());
            if index > 0 {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
        Ok(median(&seconds))
    }

    /// The throughput of the loader on this thread, in images per second.
    fn load(&self) -> f64 {
        let [channels, height, width] = self.network.input;
        let shape = Shape { channels, height, width };
        let pixels = (0..LOADED * shape.pixels()).map(|index| (index % 251) as u8).collect();
        let images = Images::new(shape, pixels, vec![0; LOADED]).expect("one label per image");
        let mean = Mean::of(&images);
        let pad = Augment::CIFAR10_PLUS.pad.min(height.min(width) - 1);
        let augment = Augment { pad, ..Augment::CIFAR10_PLUS };
        let batch = self.batch.min(LOADED);
        let loader = Loader::new(images, mean, Sampling::training(batch, SEED, augment));
        let loader = loader.expect("batch and padding fit the images");
        black_box(loader.batch(0));
        let (started, mut batches) = (Instant::now(), 0);
        while started.elapsed() < LOADING {
            batches += 1;
            black_box(loader.batch(batches));
        }
        batches as f64 * batch as f64 / started.elapsed().as_secs_f64()
    }
}

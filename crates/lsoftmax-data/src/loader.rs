//! Batches, prefetched on threads.
//!
//! The augmentation of a sample is a pure function of the seed, the epoch and the sample, and a batch
//! is a pure function of the seed and its number. The number of threads therefore does not affect the
//! results, and a resumed run gets the batches that an uninterrupted one would.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::augment::{Augment, Mean};
use crate::class_batches::ClassBatches;
use crate::dataset::{Images, Shape};
use crate::random::{Purpose, Random};

/// The number of batches that each thread keeps ready.
const READY: usize = 2;

/// The largest batch of a set smaller than this, which may span several epochs.
const SMALL_SET: usize = 1 << 12;

/// How batches are drawn from a set of images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// The number of samples per batch.
    pub batch: usize,
    /// The seed of the order and the augmentation.
    pub seed: u64,
    /// Whether each epoch has a random order, or the order of the images.
    pub shuffle: bool,
    /// What to do when an epoch ends inside a batch.
    pub last: LastBatch,
    /// Random augmentation.
    pub augment: Augment,
    /// K for batches of P classes with K images each, P · K = `batch`; `last` then does not matter, and every class
    /// is drawn equally often.
    pub images_per_class: Option<usize>,
}

/// What to do when an epoch ends inside a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LastBatch {
    /// Fill the batch from the next epoch, as in Caffe.
    Span,
    /// Return a smaller batch.
    Keep,
    /// Skip the samples that do not fill a batch.
    Drop,
}

impl Sampling {
    /// For training: shuffled, an unlimited number of epochs.
    pub fn training(batch: usize, seed: u64, augment: Augment) -> Self {
        Self { batch, seed, shuffle: true, last: LastBatch::Span, augment, images_per_class: None }
    }

    /// For evaluation: every image once, in order, without augmentation.
    pub fn evaluation(batch: usize) -> Self {
        Self {
            batch,
            seed: 0,
            shuffle: false,
            last: LastBatch::Keep,
            augment: Augment::NONE,
            images_per_class: None,
        }
    }
}

/// Why a [`Loader`] could not be created.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// No images, or more than 2^32 − 1.
    #[error("there are no images to make batches of")]
    NoImages,
    /// A batch size of 0, or one that is too large for the number of images.
    #[error("a batch of {batch} cannot be made of {images} images; choose 1 to {largest}")]
    Batch {
        /// The number of samples per batch.
        batch: usize,
        /// The number of images.
        images: usize,
        /// The largest batch size for them.
        largest: usize,
    },
    /// Augmentation that does not fit the images.
    #[error("the augmentation's `{setting}` {problem}")]
    Augment {
        /// The setting.
        setting: String,
        /// The constraint, and the value that violates it.
        problem: String,
    },
    /// Images per class that do not divide the batch, or too few classes.
    #[error(
        "a batch of {batch} with {per_class} images of each class is not possible: the batch must be a multiple, and there must be as many classes; there are {classes}"
    )]
    ImagesPerClass {
        /// The number of samples per batch.
        batch: usize,
        /// The number of images of each class.
        per_class: usize,
        /// The number of classes that have images.
        classes: usize,
    },
    /// The mean image has another number of pixels than its size.
    #[error("the mean image is of {shape}, but has {pixels} pixels; copy the model again")]
    MeanPixels {
        /// The size of the mean image.
        shape: Shape,
        /// The number of its pixels.
        pixels: usize,
    },
    /// The mean image has another size.
    #[error(
        "the mean image is {mean}, but the images are {images}; use the set that the model was trained on"
    )]
    Mean {
        /// The size of the mean image.
        mean: Shape,
        /// The size of the images.
        images: Shape,
    },
}

/// A batch of preprocessed samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its number, from 0 and without limit; not a training step, which may take several batches.
    pub number: u64,
    /// N x C x H x W, with the mean subtracted and multiplied by [`SCALE`](super::SCALE). Of a
    /// [share](Loader::with_share) of the samples, if one is set.
    pub pixels: Vec<f32>,
    /// The size of each image.
    pub shape: Shape,
    /// The label of each sample.
    pub labels: Vec<u32>,
    /// The index of the image of each sample.
    pub indices: Vec<u32>,
}

/// Turns images into batches.
#[derive(Debug)]
pub struct Loader {
    images: Arc<Images>,
    mean: Mean,
    sampling: Sampling,
    /// Batches by class, if asked for.
    by_class: Option<ClassBatches>,
    /// The samples of a batch whose images are made, if not all.
    share: Option<Range<usize>>,
    /// The cached orders of the last even and the last odd epoch.
    orders: [Mutex<Option<EpochOrder>>; 2],
}

type EpochOrder = (u64, Arc<[u32]>);

impl Loader {
    /// Batches of `images`, from which `mean` is subtracted.
    ///
    /// # Errors
    /// When there are no images, or the mean, padding or batch size does not fit them.
    pub fn new(
        images: impl Into<Arc<Images>>,
        mean: Mean,
        sampling: Sampling,
    ) -> Result<Self, LoaderError> {
        let images = images.into();
        let shape = images.shape();
        if images.is_empty() || u32::try_from(images.len()).is_err() {
            return Err(LoaderError::NoImages);
        }
        let largest = match sampling.last {
            LastBatch::Drop => images.len(),
            LastBatch::Keep | LastBatch::Span => images.len().max(SMALL_SET),
        };
        if !(1..=largest).contains(&sampling.batch) {
            let batch = sampling.batch;
            return Err(LoaderError::Batch { batch, images: images.len(), largest });
        }
        if let Some((setting, problem)) = sampling.augment.problem(shape) {
            return Err(LoaderError::Augment { setting, problem });
        }
        if mean.pixels.len() != mean.shape.pixels() {
            let pixels = mean.pixels.len();
            return Err(LoaderError::MeanPixels { shape: mean.shape, pixels });
        }
        if mean.shape != shape {
            return Err(LoaderError::Mean { mean: mean.shape, images: shape });
        }
        let by_class = match sampling.images_per_class {
            None => None,
            Some(per_class) => {
                let Sampling { batch, seed, .. } = sampling;
                let per_batch = if per_class > 0 && batch.is_multiple_of(per_class) {
                    batch / per_class
                } else {
                    0
                };
                let made = ClassBatches::new(images.labels(), seed, per_batch, per_class);
                let mut classes = images.labels().to_vec();
                classes.sort_unstable();
                classes.dedup();
                let classes = classes.len();
                Some(made.ok_or(LoaderError::ImagesPerClass { batch, per_class, classes })?)
            }
        };
        let (share, orders) = (None, Default::default());
        Ok(Self { images, mean, sampling, by_class, share, orders })
    }

    /// Makes only the images of these samples of every batch, for one of several processes that share it. Labels and
    /// indices are still those of the whole batch.
    pub fn with_share(mut self, share: Range<usize>) -> Self {
        self.share = Some(share);
        self
    }

    /// The images that batches are drawn from.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The mean that is subtracted.
    pub fn mean(&self) -> &Mean {
        &self.mean
    }

    /// How batches are drawn.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The number of batches per epoch (with [`LastBatch::Span`], the last of them is shared with the
    /// next epoch).
    pub fn batches_per_epoch(&self) -> u64 {
        let (images, batch) = (self.images.len(), self.sampling.batch);
        match self.sampling.last {
            LastBatch::Drop => (images / batch) as u64,
            LastBatch::Keep | LastBatch::Span => images.div_ceil(batch) as u64,
        }
    }

    /// The batch of a number, from 0 and without limit: a pure function of the number.
    pub fn batch(&self, number: u64) -> Batch {
        let shape = self.images.shape();
        let samples = self.samples(number);
        let mine = match &self.share {
            Some(share) => &samples[share.start.min(samples.len())..share.end.min(samples.len())],
            None => &samples,
        };
        let mut pixels = vec![0.0; mine.len() * shape.pixels()];
        let Sampling { seed, augment, .. } = self.sampling;
        for ((epoch, index), out) in mine.iter().zip(pixels.chunks_exact_mut(shape.pixels())) {
            let image = self.images.image(*index as usize);
            augment.write(image, &self.mean, [seed, *epoch, u64::from(*index)], out);
        }
        let indices: Vec<u32> = samples.into_iter().map(|(_, index)| index).collect();
        let label = |index: &u32| self.images.labels()[*index as usize];
        let labels = indices.iter().map(label).collect();
        Batch { number, pixels, shape, labels, indices }
    }

    /// The epoch and the image of each sample of a batch.
    fn samples(&self, number: u64) -> Vec<(u64, u32)> {
        if let Some(by_class) = &self.by_class {
            return by_class.samples(number);
        }
        let (images, size) = (self.images.len() as u64, self.sampling.batch as u64);
        let (mut epoch, start) = match self.sampling.last {
            LastBatch::Span => {
                let first = u128::from(number) * u128::from(size);
                ((first / u128::from(images)) as u64, (first % u128::from(images)) as u64)
            }
            LastBatch::Keep | LastBatch::Drop => {
                let batches = self.batches_per_epoch();
                (number / batches, number % batches * size)
            }
        };
        let size =
            if self.sampling.last == LastBatch::Keep { size.min(images - start) } else { size };
        let mut order = self.order(epoch);
        let (mut samples, mut position) = (Vec::with_capacity(size as usize), start as usize);
        while samples.len() < size as usize {
            if position == self.images.len() {
                (epoch, position) = (epoch.wrapping_add(1), 0);
                order = self.order(epoch);
            }
            samples.push((epoch, order.as_ref().map_or(position as u32, |order| order[position])));
            position += 1;
        }
        samples
    }

    /// The order of the images in an epoch; `None` if they are not shuffled.
    fn order(&self, epoch: u64) -> Option<Arc<[u32]>> {
        if !self.sampling.shuffle {
            return None;
        }
        let mut cached =
            self.orders[(epoch % 2) as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let order = match cached.take() {
            Some((of, order)) if of == epoch => order,
            _ => Random::new(self.sampling.seed, Purpose::Order, epoch, 0)
                .permutation(self.images.len() as u32)
                .into(),
        };
        *cached = Some((epoch, Arc::clone(&order)));
        Some(order)
    }

    /// The batches of a range of numbers, in order, prepared on `threads` threads. With 0 threads, or if
    /// threads cannot be started, each batch is prepared on demand.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use lsoftmax_data::{Augment, Images, Loader, Mean, Sampling, Shape};
    /// let shape = Shape { channels: 1, height: 2, width: 2 };
    /// let images = Images::new(shape, (0..40).collect(), (0..10).collect())?;
    /// let mean = Mean::of(&images);
    /// let loader = Arc::new(Loader::new(images, mean, Sampling::training(4, 42, Augment::NONE))?);
    /// for batch in loader.prefetch(100..105, 2) {
    ///     assert_eq!(batch, loader.batch(batch.number));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(self: &Arc<Self>, numbers: Range<u64>, threads: usize) -> Prefetch {
        let start = |thread: usize| {
            let (sender, receiver) = sync_channel(READY);
            let (loader, numbers) = (Arc::clone(self), numbers.clone());
            let work = move || loader.send(numbers.skip(thread).step_by(threads), &sender);
            // If the thread cannot be started, the channel is closed and `next` prepares the batch.
            let _ = std::thread::Builder::new().name("loader".into()).spawn(work);
            receiver
        };
        Prefetch {
            loader: Arc::clone(self),
            ready: (0..threads).map(start).collect(),
            numbers,
            returned: 0,
        }
    }

    /// Sends batches until the receiver is dropped.
    fn send(&self, numbers: impl Iterator<Item = u64>, to: &SyncSender<Batch>) {
        for number in numbers {
            if to.send(self.batch(number)).is_err() {
                return;
            }
        }
    }
}

/// Batches in the order of their numbers; see [`Loader::prefetch`].
#[derive(Debug)]
pub struct Prefetch {
    loader: Arc<Loader>,
    /// One channel per thread; batches come from the threads in turn.
    ready: Vec<Receiver<Batch>>,
    numbers: Range<u64>,
    returned: usize,
}

impl Iterator for Prefetch {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let number = self.numbers.next()?;
        let turn = self.returned.checked_rem(self.ready.len());
        self.returned = self.returned.wrapping_add(1);
        let ready = turn.and_then(|thread| self.ready[thread].recv().ok());
        Some(ready.unwrap_or_else(|| self.loader.batch(number)))
    }
}

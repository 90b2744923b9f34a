//! Batches, made ahead of need.
//!
//! What a sample becomes depends on the seed, the epoch and the sample alone, and a batch on the seed
//! and its step alone. So the number of threads changes nothing, and a run that is resumed at a step
//! sees what it would have seen.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::augment::{Augment, Mean};
use crate::dataset::{Images, Shape};
use crate::random::{Purpose, Random};

/// Batches that each thread keeps ready.
const READY: usize = 2;

/// Of a set smaller than this, a batch may hold several epochs.
const SMALL_SET: usize = 1 << 12;

/// Which samples make a batch, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Samples of a batch.
    pub batch: usize,
    /// What order and augmentation depend on.
    pub seed: u64,
    /// Whether each epoch has an order of its own, or that of the images.
    pub shuffle: bool,
    /// What happens where an epoch ends inside a batch.
    pub last: Last,
    /// How samples differ from epoch to epoch.
    pub augment: Augment,
}

/// What happens where an epoch ends inside a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Last {
    /// The batch goes on with the next epoch, as in Caffe.
    Span,
    /// The batch is smaller.
    Keep,
    /// The samples that do not fill a batch are left out.
    Drop,
}

impl Sampling {
    /// For training: shuffled, without end.
    pub fn training(batch: usize, seed: u64, augment: Augment) -> Self {
        Self { batch, seed, shuffle: true, last: Last::Span, augment }
    }

    /// For evaluation: every plain image once, in order.
    pub fn evaluation(batch: usize) -> Self {
        Self { batch, seed: 0, shuffle: false, last: Last::Keep, augment: Augment::NONE }
    }
}

/// Why there are no batches.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// Nothing to take samples from.
    #[error("there are no images to make batches of")]
    NoImages,
    /// Batches of nothing, or more than an epoch with [`Last::Drop`].
    #[error("a batch of {batch} cannot be made of {images} images; choose 1 to {largest}")]
    Batch {
        /// The samples of a batch.
        batch: usize,
        /// The images there are.
        images: usize,
        /// The largest batch of them.
        largest: usize,
    },
    /// More padding than image.
    #[error("a padding of {pad} is too large for images of {shape}; choose less than their sides")]
    Pad {
        /// The padding.
        pad: usize,
        /// The size of the images.
        shape: Shape,
    },
    /// The mean is not one of such images.
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

/// Samples as a network takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Which one it is.
    pub step: u64,
    /// N x C x H x W; the mean is subtracted and the unit is 1/256 ([`SCALE`](super::SCALE)).
    pub pixels: Vec<f32>,
    /// The size of each image.
    pub shape: Shape,
    /// The label of each sample.
    pub labels: Vec<u32>,
    /// Which image each sample is.
    pub indices: Vec<u32>,
}

/// Makes batches of images.
#[derive(Debug)]
pub struct Loader {
    images: Arc<Images>,
    mean: Mean,
    sampling: Sampling,
    /// The orders of the last even and the last odd epoch.
    orders: [Mutex<Option<EpochOrder>>; 2],
}

type EpochOrder = (u64, Arc<[u32]>);

impl Loader {
    /// Batches of `images`, from which `mean` is subtracted.
    ///
    /// # Errors
    /// When there are no images, or something does not fit them.
    pub fn new(
        images: impl Into<Arc<Images>>,
        mean: Mean,
        sampling: Sampling,
    ) -> Result<Self, LoaderError> {
        let images = images.into();
        let (shape, pad) = (images.shape(), sampling.augment.pad);
        if images.is_empty() || u32::try_from(images.len()).is_err() {
            return Err(LoaderError::NoImages);
        }
        let largest = match sampling.last {
            Last::Drop => images.len(),
            Last::Keep | Last::Span => images.len().max(SMALL_SET),
        };
        if !(1..=largest).contains(&sampling.batch) {
            let batch = sampling.batch;
            return Err(LoaderError::Batch { batch, images: images.len(), largest });
        }
        if pad >= shape.height.min(shape.width) {
            return Err(LoaderError::Pad { pad, shape });
        }
        if mean.shape != shape || mean.pixels.len() != shape.pixels() {
            return Err(LoaderError::Mean { mean: mean.shape, images: shape });
        }
        Ok(Self { images, mean, sampling, orders: Default::default() })
    }

    /// The images that batches are made of.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The mean that is subtracted.
    pub fn mean(&self) -> &Mean {
        &self.mean
    }

    /// Which samples make a batch.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The batches in which every sample is seen once (with [`Last::Span`], the last of them is shared
    /// with the next epoch).
    pub fn steps_per_epoch(&self) -> u64 {
        let (images, batch) = (self.images.len(), self.sampling.batch);
        match self.sampling.last {
            Last::Drop => (images / batch) as u64,
            Last::Keep | Last::Span => images.div_ceil(batch) as u64,
        }
    }

    /// The batch of a step, counted from 0 and without end: a pure function of the step.
    pub fn batch(&self, step: u64) -> Batch {
        let shape = self.images.shape();
        let samples = self.samples(step);
        let mut batch = Batch {
            step,
            pixels: vec![0.0; samples.len() * shape.pixels()],
            shape,
            labels: Vec::with_capacity(samples.len()),
            indices: Vec::with_capacity(samples.len()),
        };
        let Sampling { seed, augment, .. } = self.sampling;
        for ((epoch, index), out) in
            samples.into_iter().zip(batch.pixels.chunks_exact_mut(shape.pixels()))
        {
            let image = self.images.image(index as usize);
            augment.view(seed, epoch, u64::from(index)).write(image, &self.mean, out);
            batch.labels.push(self.images.labels()[index as usize]);
            batch.indices.push(index);
        }
        batch
    }

    /// The epoch and the image of each sample of a batch.
    fn samples(&self, step: u64) -> Vec<(u64, u32)> {
        let (images, size) = (self.images.len() as u64, self.sampling.batch as u64);
        let (mut epoch, start) = match self.sampling.last {
            Last::Span => {
                let first = u128::from(step) * u128::from(size);
                ((first / u128::from(images)) as u64, (first % u128::from(images)) as u64)
            }
            Last::Keep | Last::Drop => {
                let steps = self.steps_per_epoch();
                (step / steps, step % steps * size)
            }
        };
        let size = if self.sampling.last == Last::Keep { size.min(images - start) } else { size };
        let mut order = self.order(epoch);
        let (mut samples, mut place) = (Vec::with_capacity(size as usize), start as usize);
        while samples.len() < size as usize {
            if place == self.images.len() {
                (epoch, place) = (epoch.wrapping_add(1), 0);
                order = self.order(epoch);
            }
            samples.push((epoch, order.as_ref().map_or(place as u32, |order| order[place])));
            place += 1;
        }
        samples
    }

    /// The order of the images in an epoch, if it is not their own.
    fn order(&self, epoch: u64) -> Option<Arc<[u32]>> {
        if !self.sampling.shuffle {
            return None;
        }
        let mut kept =
            self.orders[(epoch % 2) as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let order = match kept.take() {
            Some((of, order)) if of == epoch => order,
            _ => Random::new(self.sampling.seed, Purpose::Order, epoch, 0)
                .permutation(self.images.len() as u32)
                .into(),
        };
        *kept = Some((epoch, Arc::clone(&order)));
        Some(order)
    }

    /// The batches of some steps, in order, made ahead of need on so many threads; on none, or where
    /// the system gives none, each is made when it is asked for.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use lsoftmax_data::{Augment, Images, Loader, Mean, Sampling, Shape};
    /// let shape = Shape { channels: 1, height: 2, width: 2 };
    /// let images = Images::new(shape, (0..40).collect(), (0..10).collect())?;
    /// let mean = Mean::of(&images);
    /// let loader = Arc::new(Loader::new(images, mean, Sampling::training(4, 42, Augment::NONE))?);
    /// for batch in loader.ahead(100..105, 2) {
    ///     assert_eq!(batch, loader.batch(batch.step));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ahead(self: &Arc<Self>, steps: Range<u64>, threads: usize) -> Ahead {
        let start = |thread: usize| {
            let (sender, receiver) = sync_channel(READY);
            let (loader, steps) = (Arc::clone(self), steps.clone());
            let work = move || loader.send(steps.skip(thread).step_by(threads), &sender);
            // Without the thread nothing is ever sent, which `next` takes for what it is.
            let _ = std::thread::Builder::new().name("loader".into()).spawn(work);
            receiver
        };
        Ahead { loader: Arc::clone(self), ready: (0..threads).map(start).collect(), steps, made: 0 }
    }

    /// Sends batches for as long as somebody takes them.
    fn send(&self, steps: impl Iterator<Item = u64>, to: &SyncSender<Batch>) {
        for step in steps {
            if to.send(self.batch(step)).is_err() {
                return;
            }
        }
    }
}

/// Batches in the order of their steps; see [`Loader::ahead`].
#[derive(Debug)]
pub struct Ahead {
    loader: Arc<Loader>,
    /// One channel a thread: the threads take turns.
    ready: Vec<Receiver<Batch>>,
    steps: Range<u64>,
    made: usize,
}

impl Iterator for Ahead {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let step = self.steps.next()?;
        let turn = self.made.checked_rem(self.ready.len());
        self.made = self.made.wrapping_add(1);
        let ready = turn.and_then(|thread| self.ready[thread].recv().ok());
        Some(ready.unwrap_or_else(|| self.loader.batch(step)))
    }
}

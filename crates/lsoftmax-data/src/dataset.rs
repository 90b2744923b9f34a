//! Images and their labels in memory.

use std::collections::{BTreeMap, TryReserveError};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::contents::hexadecimal;
use crate::random::{Purpose, Random};

/// The size of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// 1 for grey, 3 for red, green and blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Shape {
    /// The pixels of one image, all channels.
    pub fn pixels(&self) -> usize {
        self.channels * self.height * self.width
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} x {}", self.channels, self.height, self.width)
    }
}

/// Why images could not be assembled or split.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The number of pixels does not match the number of labels.
    #[error("{labels} images of {shape} have {} pixels, but there are {pixels}", labels * shape.pixels())]
    Pixels {
        /// The number of labels, one per image.
        labels: usize,
        /// The size of one image.
        shape: Shape,
        /// The number of pixels.
        pixels: usize,
    },
    /// An index out of range.
    #[error("image index {index} is out of range for {images} images")]
    Index {
        /// The index.
        index: u32,
        /// The number of images.
        images: usize,
    },
    /// No training images would remain.
    #[error(
        "{held_out} images cannot be held out of {images}; at least one must remain to train on"
    )]
    HeldOut {
        /// The number of images to hold out.
        held_out: usize,
        /// The number of images.
        images: usize,
    },
    /// No training images of a class would remain.
    #[error(
        "{held_out} images cannot be held out of {images} of {classes} classes; at least one of each must remain to train on, so hold out at most {}",
        images - classes
    )]
    HeldOutOfClasses {
        /// The number of images to hold out.
        held_out: usize,
        /// The number of images.
        images: usize,
        /// The number of classes that have images.
        classes: usize,
    },
    /// A class that the model was not trained on.
    #[error(
        "the model has no class `{class}`; its classes are {}{}",
        known.iter().take(10).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        if known.len() > 10 { ", …" } else { "" }
    )]
    Class {
        /// The name of the class.
        class: String,
        /// The model's classes.
        known: Vec<String>,
    },
    /// Not enough memory.
    #[error("the images do not fit into memory ({0}); use fewer or smaller ones")]
    Memory(#[from] TryReserveError),
}

/// Images of one size: pixels as N x C x H x W bytes, and one label per image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    shape: Shape,
    pixels: Vec<u8>,
    labels: Vec<u32>,
    /// The files that they were read from, one per image; empty if an image is not a file of its own.
    files: Vec<PathBuf>,
}

impl Images {
    /// Images of `shape`, one per label.
    ///
    /// # Errors
    /// When the number of pixels does not match the shape and the number of labels.
    pub fn new(shape: Shape, pixels: Vec<u8>, labels: Vec<u32>) -> Result<Self, ImagesError> {
        if shape.pixels().checked_mul(labels.len()) != Some(pixels.len()) {
            return Err(ImagesError::Pixels { labels: labels.len(), shape, pixels: pixels.len() });
        }
        Ok(Self { shape, pixels, labels, files: Vec::new() })
    }

    /// The same images with other labels and the files that they were read from, one each.
    pub(crate) fn of_files(self, labels: Vec<u32>, files: Vec<PathBuf>) -> Self {
        assert_eq!([labels.len(), files.len()], [self.len(); 2], "one label and file per image");
        Self { labels, files, ..self }
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The size of each image.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// All pixels, N x C x H x W.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// All labels.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The file of an image, if it was read from a file of its own.
    pub fn file(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(PathBuf::as_path)
    }

    /// The pixels of one image, C x H x W; panics if `index` is out of range.
    pub fn image(&self, index: usize) -> &[u8] {
        let size = self.shape.pixels();
        &self.pixels[index * size..][..size]
    }

    /// The images mirrored left to right.
    pub fn mirrored(&self) -> Self {
        let mut mirrored = self.clone();
        mirrored.pixels.chunks_exact_mut(self.shape.width).for_each(<[u8]>::reverse);
        mirrored
    }

    /// Some of the images, in the order given.
    ///
    /// # Errors
    /// When an index is out of range or memory runs out.
    pub fn select(&self, indices: &[u32]) -> Result<Self, ImagesError> {
        let (mut pixels, mut labels, mut files) = (Vec::new(), Vec::new(), Vec::new());
        pixels.try_reserve_exact(indices.len() * self.shape.pixels())?;
        labels.try_reserve_exact(indices.len())?;
        for &index in indices {
            let Some(label) = self.labels.get(index as usize) else {
                return Err(ImagesError::Index { index, images: self.len() });
            };
            labels.push(*label);
            pixels.extend_from_slice(self.image(index as usize));
            files.extend(self.files.get(index as usize).cloned());
        }
        Ok(Self { shape: self.shape, pixels, labels, files })
    }

    /// Holds out `held_out` images for validation (the paper: 5,000 of CIFAR's 50,000): the last ones
    /// of a permutation that depends only on the seed and the number of images. Returns the training
    /// images and the held-out images, each in their original order.
    ///
    /// ```
    /// use lsoftmax_data::{Images, Shape};
    /// let shape = Shape { channels: 1, height: 1, width: 1 };
    /// let images = Images::new(shape, vec![0; 100], vec![0; 100])?;
    /// let (train, validation) = images.hold_out(10, 42)?;
    /// assert_eq!((train.len(), validation.len()), (90, 10));
    /// # Ok::<(), lsoftmax_data::ImagesError>(())
    /// ```
    ///
    /// # Errors
    /// When no training images would remain, or memory runs out.
    pub fn hold_out(&self, held_out: usize, seed: u64) -> Result<(Self, Self), ImagesError> {
        let images = self.len();
        let count = u32::try_from(images).ok().filter(|_| held_out < images);
        let Some(count) = count else {
            return Err(ImagesError::HeldOut { held_out, images });
        };
        let mut order = Random::new(seed, Purpose::Validation, 0, 0).permutation(count);
        let validation = order.split_off(images - held_out);
        self.divided(order, validation)
    }

    /// As [`Images::hold_out`], but of every class in proportion to its size, by the seed and the labels.
    /// Every class keeps at least one training image.
    ///
    /// ```
    /// use lsoftmax_data::{Images, Shape};
    /// let shape = Shape { channels: 1, height: 1, width: 1 };
    /// let images = Images::new(shape, vec![0; 100], [vec![0; 90], vec![1; 10]].concat())?;
    /// let (_, validation) = images.hold_out_of_classes(10, 42)?;
    /// assert_eq!(validation.labels(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    /// # Ok::<(), lsoftmax_data::ImagesError>(())
    /// ```
    ///
    /// # Errors
    /// When no training images of a class would remain, or memory runs out.
    pub fn hold_out_of_classes(
        &self,
        held_out: usize,
        seed: u64,
    ) -> Result<(Self, Self), ImagesError> {
        let (images, sizes) = (self.len(), self.class_sizes());
        let count = u32::try_from(images).ok().filter(|_| held_out <= images - sizes.len());
        let Some(count) = count else {
            return Err(ImagesError::HeldOutOfClasses { held_out, images, classes: sizes.len() });
        };
        // The images of a class, in random order, are spread evenly from 0 to 1; those nearest to 0 are
        // held out, but never the last of a class.
        let mut seen = BTreeMap::new();
        let order = Random::new(seed, Purpose::Validation, 0, 0).permutation(count);
        let place = |index: &u32| {
            let label = self.labels[*index as usize];
            let (size, seen) = (sizes[&label], seen.entry(label).or_insert(0));
            *seen += 1;
            if *seen == size { 1.0 } else { (*seen as f64 - 0.5) / size as f64 }
        };
        let mut places: Vec<(f64, u32)> = order.iter().map(place).zip(order.clone()).collect();
        // A stable sort: ties stay in random order.
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut validation: Vec<u32> = places.into_iter().map(|(_, index)| index).collect();
        let rest = validation.split_off(held_out);
        self.divided(rest, validation)
    }

    /// The number of images of every class that has any, by label.
    fn class_sizes(&self) -> BTreeMap<u32, usize> {
        let mut sizes = BTreeMap::new();
        self.labels.iter().for_each(|label| *sizes.entry(*label).or_insert(0) += 1);
        sizes
    }

    /// Two sets of images, each in their original order.
    fn divided(
        &self,
        mut train: Vec<u32>,
        mut held_out: Vec<u32>,
    ) -> Result<(Self, Self), ImagesError> {
        train.sort_unstable();
        held_out.sort_unstable();
        Ok((self.select(&train)?, self.select(&held_out)?))
    }
}

/// How images are held out of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldOut {
    /// From all images alike: [`Images::hold_out`], for the sets of the paper.
    #[default]
    OfAll,
    /// From every class in proportion: [`Images::hold_out_of_classes`], for folders of images.
    OfClasses,
}

impl HoldOut {
    /// Divides images into training images and `held_out` others.
    ///
    /// # Errors
    /// When too few training images would remain, or memory runs out.
    pub fn divide(
        self,
        images: &Images,
        held_out: usize,
        seed: u64,
    ) -> Result<(Images, Images), ImagesError> {
        match self {
            Self::OfAll => images.hold_out(held_out, seed),
            Self::OfClasses => images.hold_out_of_classes(held_out, seed),
        }
    }
}

/// A labelled set of images, read from its files.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// The number of classes; labels are below it.
    pub classes: usize,
    /// The names of the classes, one per class.
    pub class_names: Vec<String>,
    /// The training images, including those that [`Images::hold_out`] separates for validation.
    pub train: Images,
    /// The test images, if the set has any.
    pub test: Option<Images>,
}

/// Part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training images, including held-out ones.
    Train,
    /// The test images.
    Test,
}

impl Split {
    /// All parts.
    pub const ALL: [Self; 2] = [Self::Train, Self::Test];

    /// `train` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// In a data set without test images, one in this many training images becomes a test image.
const TEST_SHARE: usize = 10;

impl Dataset {
    /// A SHA-256 of everything that a run depends on: images, labels and class names.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for images in std::iter::once(&self.train).chain(&self.test) {
            let Shape { channels, height, width } = images.shape;
            for number in [images.len(), channels, height, width] {
                digest.update((number as u64).to_le_bytes());
            }
            images.labels.iter().for_each(|label| digest.update(label.to_le_bytes()));
            digest.update(&images.pixels);
        }
        for name in &self.class_names {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
        }
        hexadecimal(digest)
    }

    /// Splits off a tenth of the training images, chosen by the seed, as test images if the set has
    /// none; less if every image of a class would be among them. Sets of fewer than 20 training images
    /// are left without test images.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn with_test(mut self, hold_out: HoldOut, seed: u64) -> Result<Self, ImagesError> {
        let images = self.train.len();
        if self.test.is_some() || images < 2 * TEST_SHARE {
            return Ok(self);
        }
        let count = match hold_out {
            HoldOut::OfAll => images / TEST_SHARE,
            HoldOut::OfClasses => {
                (images / TEST_SHARE).min(images - self.train.class_sizes().len())
            }
        };
        if count > 0 {
            // A different seed from that of the validation images, which are held out of the rest.
            let (rest, test) = hold_out.divide(&self.train, count, !seed)?;
            (self.train, self.test) = (rest, Some(test));
        }
        Ok(self)
    }

    /// The images of a split, if there are any.
    pub fn split(self, split: Split) -> Option<Images> {
        match split {
            Split::Train => Some(self.train),
            Split::Test => self.test,
        }
    }

    /// Renumbers the classes to match a model's class names. The data set need not have all of the
    /// model's classes.
    ///
    /// # Errors
    /// When the model lacks one of the classes.
    pub fn numbered_as(mut self, known: &[String]) -> Result<Self, ImagesError> {
        let number = |class: &String| {
            let number = known.iter().position(|name| name == class);
            number
                .map(|number| number as u32)
                .ok_or_else(|| ImagesError::Class { class: class.clone(), known: known.to_vec() })
        };
        let numbers = self.class_names.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        for images in std::iter::once(&mut self.train).chain(&mut self.test) {
            images.labels.iter_mut().for_each(|label| *label = numbers[*label as usize]);
        }
        (self.classes, self.class_names) = (known.len(), known.to_vec());
        Ok(self)
    }
}

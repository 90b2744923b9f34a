//! The features of images, with or without their mirror images.

use std::sync::Arc;

use lsoftmax_data::Images;

use crate::evaluate::{EvaluateError, for_each_image};
use crate::model_file::TrainedModel;

/// What becomes of the features of an image and of its mirror image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flip {
    /// They are added.
    Sum,
    /// Those of the mirror image follow those of the image.
    Concat,
}

impl Flip {
    /// Both by their names.
    pub const ALL: [(&'static str, Self); 2] = [("sum", Self::Sum), ("concat", Self::Concat)];

    /// The features of images and of their mirror images together: their number per image, and they themselves.
    pub fn joined(self, width: usize, original: &[f32], mirrored: &[f32]) -> (usize, Vec<f32>) {
        match self {
            Self::Sum => {
                (width, original.iter().zip(mirrored).map(|(one, other)| one + other).collect())
            }
            Self::Concat => {
                let both = original.chunks_exact(width).zip(mirrored.chunks_exact(width));
                (2 * width, both.flat_map(|(one, other)| [one, other].concat()).collect())
            }
        }
    }
}

/// The features of images, row by row, and of their mirror images.
#[derive(Clone, Debug)]
pub struct Features {
    width: usize,
    original: Vec<f32>,
    mirrored: Vec<f32>,
}

impl Features {
    /// Computes the features of images, twice as many passes if those of the mirror images are needed.
    ///
    /// # Errors
    /// When the images do not fit the model.
    pub fn of(
        model: &TrainedModel,
        images: Arc<Images>,
        flip: bool,
    ) -> Result<Self, EvaluateError> {
        let TrainedModel { model, description } = model;
        let rows = |images: &Arc<Images>| {
            let mut rows = Vec::with_capacity(images.len() * description.network.features.size);
            for_each_image(model, images, &description.mean, |output| {
                rows.extend_from_slice(&output.features);
            })?;
            Ok::<_, EvaluateError>(rows)
        };
        let original = rows(&images)?;
        let mirrored = if flip { rows(&Arc::new(images.mirrored()))? } else { Vec::new() };
        Ok(Self { width: description.network.features.size, original, mirrored })
    }

    /// The number of features per image, and the features: of the images alone, or with their mirror images.
    pub fn rows(&self, flip: Option<Flip>) -> (usize, Vec<f32>) {
        match flip {
            None => (self.width, self.original.clone()),
            Some(flip) => flip.joined(self.width, &self.original, &self.mirrored),
        }
    }
}

//! The images that a model gets most wrong.

use lsoftmax_data::Images;
use serde::Serialize;

use crate::evaluate::{ImageOutput, argmax, scaled_sum_exp};
use crate::figures::Thumbnail;

/// A misclassified image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrongImage {
    /// Its index among the images evaluated.
    pub index: usize,
    /// Its file, if the images are files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The name of its class.
    pub label: String,
    /// The softmax probability of its class.
    pub label_probability: f64,
    /// The name of the predicted class.
    pub predicted: String,
    /// The softmax probability of the predicted class.
    pub probability: f64,
}

impl WrongImage {
    /// The image with what it is, what it is taken for, and its index or the name of its file.
    pub(super) fn thumbnail<'a>(&self, images: &'a Images) -> Thumbnail<'a> {
        let file = images.file(self.index).and_then(|file| file.file_name());
        let name = match file {
            Some(name) => name.to_string_lossy().into_owned(),
            None => format!("image {}", self.index),
        };
        Thumbnail {
            pixels: images.image(self.index),
            title: self.label.clone(),
            captions: vec![format!("{:.0} % {}", 100.0 * self.probability, self.predicted), name],
        }
    }
}

/// All misclassified images of a pass.
#[derive(Debug, Default)]
pub(super) struct WrongImages {
    images: usize,
    wrong: Vec<Wrong>,
}

#[derive(Clone, Copy, Debug)]
struct Wrong {
    index: usize,
    label: usize,
    predicted: usize,
    label_probability: f64,
    probability: f64,
}

impl WrongImages {
    /// Adds the next image of the pass.
    pub fn add(&mut self, ImageOutput { logits, label, .. }: &ImageOutput) {
        let (index, label, predicted) = (self.images, *label as usize, argmax(logits));
        self.images += 1;
        if label == predicted {
            return;
        }
        let (largest, sum) = scaled_sum_exp(logits);
        let probability = |class: usize| (f64::from(logits[class]) - largest).exp() / sum;
        let (label_probability, probability) = (probability(label), probability(predicted));
        self.wrong.push(Wrong { index, label, predicted, label_probability, probability });
    }

    /// The images whose class is least probable, at most `count`.
    pub fn most_wrong(
        mut self,
        count: usize,
        images: &Images,
        names: &[String],
    ) -> Vec<WrongImage> {
        self.wrong.sort_by(|a, b| a.label_probability.total_cmp(&b.label_probability));
        let named = |wrong: &Wrong| WrongImage {
            index: wrong.index,
            file: images.file(wrong.index).map(|file| file.display().to_string()),
            label: names[wrong.label].clone(),
            label_probability: wrong.label_probability,
            predicted: names[wrong.predicted].clone(),
            probability: wrong.probability,
        };
        self.wrong.iter().take(count).map(named).collect()
    }
}

//! Scores by class, and which classes are taken for which.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evaluate::argmax;

/// With more classes than this, the confusion matrix is left out.
const MOST_CLASSES: usize = 1000;
/// The most confused pairs that are listed.
const MOST_PAIRS: usize = 20;

/// How well a model classifies, by class. Scores are from 0 to 1; one whose denominator is 0 is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// How often the label is among the k classes with the largest logits, for k = 1 and, with more than
    /// k classes, for the requested k.
    pub top: Vec<TopK>,
    /// The mean precision of the classes that are labels or predictions.
    pub precision: f64,
    /// Their mean recall.
    pub recall: f64,
    /// Their mean F1.
    pub f1: f64,
    /// The scores of every class.
    pub per_class: Vec<ClassScores>,
    /// The number of images of class i that are classified as class j: row i, column j. Empty with more
    /// than 1,000 classes.
    pub confusion: Vec<Vec<u32>>,
    /// The pairs of classes that are confused most often, at most 20.
    pub confused: Vec<ConfusedPair>,
}

/// A top-k accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopK {
    /// k.
    pub k: usize,
    /// The share of images whose label is among the k largest logits.
    pub accuracy: f64,
}

/// The scores of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// The name of the class.
    pub name: String,
    /// The number of its images.
    pub images: u32,
    /// The number of images that are classified as this class.
    pub predicted: u32,
    /// The share of those that are of this class.
    pub precision: f64,
    /// The share of the class's images that are classified correctly.
    pub recall: f64,
    /// The harmonic mean of precision and recall.
    pub f1: f64,
}

/// A class whose images are taken for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusedPair {
    /// The label's class.
    pub label: String,
    /// The class that is predicted instead.
    pub predicted: String,
    /// The number of images.
    pub images: u32,
}

/// Counts over the images of a pass.
#[derive(Clone, Debug)]
pub struct ClassificationSums {
    k: usize,
    images: u32,
    /// Images whose label is among the k largest logits.
    in_top_k: u32,
    /// By class: images, predictions, and both.
    labels: Vec<u32>,
    predictions: Vec<u32>,
    correct: Vec<u32>,
    /// Misclassified images by label and prediction.
    confused: BTreeMap<(u32, u32), u32>,
}

impl ClassificationSums {
    /// No images yet; `k` of the top-k accuracy.
    pub fn new(classes: usize, k: usize) -> Self {
        let zeros = || vec![0; classes];
        Self {
            k,
            images: 0,
            in_top_k: 0,
            labels: zeros(),
            predictions: zeros(),
            correct: zeros(),
            confused: BTreeMap::new(),
        }
    }

    /// Adds an image.
    pub fn add(&mut self, label: u32, logits: &[f32]) {
        let (class, predicted) = (label as usize, argmax(logits));
        // Of equal logits the first comes first, as in `argmax`.
        let before = |(other, logit): (usize, &f32)| {
            *logit > logits[class] || (*logit == logits[class] && other < class)
        };
        let rank = logits.iter().enumerate().filter(|entry| before(*entry)).count();
        self.images += 1;
        self.in_top_k += u32::from(rank < self.k);
        self.labels[class] += 1;
        self.predictions[predicted] += 1;
        if predicted == class {
            self.correct[class] += 1;
        } else {
            *self.confused.entry((label, predicted as u32)).or_insert(0) += 1;
        }
    }

    /// The scores of the images added; `names` of all classes.
    pub fn classification(&self, names: &[String]) -> Classification {
        let per_class: Vec<ClassScores> =
            names.iter().enumerate().map(|(class, name)| self.scores(class, name)).collect();
        let is_used = |scores: &&ClassScores| scores.images + scores.predicted > 0;
        let mean = |score: fn(&ClassScores) -> f64| {
            let scores: Vec<f64> = per_class.iter().filter(is_used).map(score).collect();
            scores.iter().sum::<f64>() / scores.len().max(1) as f64
        };
        let [precision, recall, f1] = [
            mean(|scores| scores.precision),
            mean(|scores| scores.recall),
            mean(|scores| scores.f1),
        ];
        Classification {
            top: self.top(),
            precision,
            recall,
            f1,
            confusion: self.confusion(),
            confused: self.most_confused(names),
            per_class,
        }
    }

    fn scores(&self, class: usize, name: &str) -> ClassScores {
        let [images, predicted, correct] =
            [&self.labels, &self.predictions, &self.correct].map(|counts| counts[class]);
        ClassScores {
            name: name.into(),
            images,
            predicted,
            precision: ratio(correct, predicted),
            recall: ratio(correct, images),
            f1: ratio(2 * correct, images + predicted),
        }
    }

    fn top(&self) -> Vec<TopK> {
        let mut top = vec![TopK { k: 1, accuracy: ratio(self.correct.iter().sum(), self.images) }];
        if (2..self.labels.len()).contains(&self.k) {
            top.push(TopK { k: self.k, accuracy: ratio(self.in_top_k, self.images) });
        }
        top
    }

    fn confusion(&self) -> Vec<Vec<u32>> {
        let classes = self.labels.len();
        if classes > MOST_CLASSES {
            return Vec::new();
        }
        let mut matrix = vec![vec![0; classes]; classes];
        for (class, correct) in self.correct.iter().enumerate() {
            matrix[class][class] = *correct;
        }
        for ((label, predicted), images) in &self.confused {
            matrix[*label as usize][*predicted as usize] = *images;
        }
        matrix
    }

    fn most_confused(&self, names: &[String]) -> Vec<ConfusedPair> {
        let mut pairs: Vec<_> = self.confused.iter().collect();
        // A stable sort: pairs of equally many images stay in the order of the classes.
        pairs.sort_by_key(|(_, images)| std::cmp::Reverse(**images));
        let pair = |((label, predicted), images): (&(u32, u32), &u32)| ConfusedPair {
            label: names[*label as usize].clone(),
            predicted: names[*predicted as usize].clone(),
            images: *images,
        };
        pairs.into_iter().take(MOST_PAIRS).map(pair).collect()
    }
}

fn ratio(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}

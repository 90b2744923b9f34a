//! What a finished run tells about its test images: `RUN/test.json`.

use std::sync::Arc;

use lsoftmax_data::{Images, Mean};
use serde::{Deserialize, Serialize};

use crate::evaluate::{
    Classified, EvaluateError, Evaluation, EvaluationSums, ImageOutput, LogitLengths, WatchImages,
    for_each_image_watched, norm,
};
use crate::figures::{Embedding, MAX_SAMPLES};
use crate::model::Classifier;

/// With more classes than this, the most that the paper compares, the table of cosines would be larger than all the
/// rest of a record, and is left out.
const MOST_CLASSES: usize = 100;

/// What the test images look like to a trained model: which are misclassified, how similar the classes
/// are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestDetails {
    /// The indices of the misclassified images, in increasing order.
    pub wrong: Vec<u32>,
    /// The mean cosine between the features of two different images, one of class i and one of class j:
    /// row i, column j (the diagonal: within a class). Rounded to 4 decimals; 0 where there are no such
    /// two images. Empty with more than 100 classes.
    pub cosines: Vec<Vec<f64>>,
    /// If the network has two features: a sample of the test images, for a scatter plot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plane: Option<Plane>,
}

/// Features in the plane: at most 2,000 images, equally many of each class. Values are rounded to 4
/// significant digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plane {
    /// W, one pair per class.
    pub weights: Vec<[f32; 2]>,
    /// The labels, one per image.
    pub labels: Vec<u32>,
    /// The features, one pair per image.
    pub features: Vec<[f32; 2]>,
}

impl TestDetails {
    /// The angle in degrees between the mean direction of a class and that of the nearest other class: mean
    /// over classes. `None` if the cosines are missing or a class has no direction.
    pub fn angle_between_classes(&self) -> Option<f64> {
        let classes = 0..self.cosines.len();
        let cosine = |i: usize, j: usize| self.cosines.get(i)?.get(j).copied();
        // The mean cosine within a class is the square of the length of its mean unit feature.
        let angle = |i: usize, j: usize| {
            let lengths = (cosine(i, i)? * cosine(j, j)?).sqrt();
            let angle = (cosine(i, j)? / lengths).clamp(-1.0, 1.0).acos().to_degrees();
            angle.is_finite().then_some(angle)
        };
        let nearest = |i: usize| {
            let others = classes.clone().filter(|j| *j != i).map(|j| angle(i, j));
            others.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
        };
        let angles: Vec<f64> = classes.clone().map(nearest).collect::<Option<_>>()?;
        (!angles.is_empty()).then(|| angles.iter().sum::<f64>() / angles.len() as f64)
    }
}

/// Evaluates a model (on a device without autodiff) on all images, and returns the details of the same
/// pass.
///
/// # Errors
/// When the images do not fit the model, or `watch` stops the evaluation.
pub fn evaluate_with_details(
    model: &Classifier,
    images: &Arc<Images>,
    mean: &Mean,
    watch: &mut WatchImages<'_>,
) -> Result<(Evaluation, TestDetails), EvaluateError> {
    let [classes, width] = model.head.weight.dims();
    let (lengths, mut details) = (LogitLengths::of(model), DetailSums::new(classes, width));
    let visit = |output: &ImageOutput| {
        details.add(&output.features, output.label, lengths.classified(output));
    };
    for_each_image_watched(model, images, mean, visit, watch)?;
    let weights = (width == 2).then(|| model.head.weight.val().into_data().iter::<f32>().collect());
    Ok(details.result(weights))
}

/// The sums of an evaluation with its [`TestDetails`].
pub(crate) struct DetailSums {
    sums: EvaluationSums,
    index: u32,
    wrong: Vec<u32>,
    cosines: Option<CosineSums>,
    /// Features and labels, if there are two features.
    plane: Option<(Vec<f32>, Vec<u32>)>,
}

impl DetailSums {
    /// No images yet.
    pub fn new(classes: usize, width: usize) -> Self {
        Self {
            sums: EvaluationSums::default(),
            index: 0,
            wrong: Vec::new(),
            cosines: (classes <= MOST_CLASSES).then(|| CosineSums::new(classes, width)),
            plane: (width == 2).then(Default::default),
        }
    }

    /// Adds an image.
    pub fn add(&mut self, features: &[f32], label: u32, found: Classified) {
        self.sums.add(found);
        if !found.correct {
            self.wrong.push(self.index);
        }
        self.index += 1;
        if let Some(cosines) = &mut self.cosines {
            cosines.add(features, label);
        }
        if let Some((all, labels)) = &mut self.plane {
            all.extend_from_slice(features);
            labels.push(label);
        }
    }

    /// The result; with a picture of the plane if there are two features and the weights are given.
    pub fn result(self, weights: Option<Vec<f32>>) -> (Evaluation, TestDetails) {
        let plane = self.plane.zip(weights);
        let plane =
            plane.and_then(|((features, labels), weights)| Plane::of(&features, &labels, &weights));
        let cosines = self.cosines.map(|cosines| cosines.means()).unwrap_or_default();
        (self.sums.evaluation(), TestDetails { wrong: self.wrong, cosines, plane })
    }
}

/// The sums of unit features by class, which determine the mean cosines: the sum of the cosines of all
/// pairs of two classes is the product of their sums.
struct CosineSums {
    width: usize,
    /// `[classes, width]`, row by row.
    sums: Vec<f64>,
    /// The number of images of each class, and of those whose feature is not zero.
    counts: Vec<(f64, f64)>,
}

impl CosineSums {
    fn new(classes: usize, width: usize) -> Self {
        Self { width, sums: vec![0.0; classes * width], counts: vec![(0.0, 0.0); classes] }
    }

    /// Adds an image. A feature of zero, or one that is not finite, has a cosine of 0 to every other.
    fn add(&mut self, features: &[f32], label: u32) {
        let class = label as usize;
        self.counts[class].0 += 1.0;
        let length = norm(features);
        if length > 0.0 && length.is_finite() {
            self.counts[class].1 += 1.0;
            let sums = &mut self.sums[class * self.width..][..self.width];
            for (sum, value) in sums.iter_mut().zip(features) {
                *sum += f64::from(*value) / length;
            }
        }
    }

    fn means(&self) -> Vec<Vec<f64>> {
        let row = |class: usize| &self.sums[class * self.width..][..self.width];
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mean = |i: usize, j: usize| {
            let product = dot(row(i), row(j));
            let ((n, units), (other, _)) = (self.counts[i], self.counts[j]);
            // Within a class, an image is not paired with itself.
            let (sum, pairs) =
                if i == j { (product - units, n * (n - 1.0)) } else { (product, n * other) };
            if pairs > 0.0 { rounded(sum / pairs) } else { 0.0 }
        };
        let classes = 0..self.counts.len();
        classes.clone().map(|i| classes.clone().map(|j| mean(i, j)).collect()).collect()
    }
}

/// A number rounded to 4 decimals; never −0.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4 + 0.0
}

impl Plane {
    /// A sample of these images, class by class; `None` if a number is not finite.
    fn of(features: &[f32], labels: &[u32], weights: &[f32]) -> Option<Self> {
        let embedding = Embedding::new(features, labels, weights, 2).ok()?;
        let pair = |row: &[f32]| [short(row[0]), short(row[1])];
        let chosen: Vec<usize> = embedding.subsample(MAX_SAMPLES).concat();
        Some(Self {
            weights: weights.chunks_exact(2).map(pair).collect(),
            labels: chosen.iter().map(|image| labels[*image]).collect(),
            features: chosen.iter().map(|image| pair(embedding.feature(*image))).collect(),
        })
    }
}

/// A number rounded to 4 significant digits.
fn short(value: f32) -> f32 {
    format!("{value:.3e}").parse().expect("a number that was formatted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cosines(width: usize, classes: usize, images: &[(u32, Vec<f32>)]) -> Vec<Vec<f64>> {
        let mut sums = CosineSums::new(classes, width);
        for (label, features) in images {
            sums.add(features, *label);
        }
        sums.means()
    }

    #[test]
    fn cosines_by_hand() {
        // Class 0 at 0° and 60°, class 1 at 90°, class 2 with a zero feature and two at 180°; none of
        // class 3. Lengths do not matter.
        let at = |degrees: f32, length: f32| {
            let angle = degrees.to_radians();
            vec![length * angle.cos(), length * angle.sin()]
        };
        let images = [
            (0, at(0.0, 2.0)),
            (2, vec![0.0, 0.0]),
            (0, at(60.0, 0.5)),
            (1, at(90.0, 7.0)),
            (2, at(180.0, 1.0)),
            (2, at(180.0, 3.0)),
        ];
        let half = 3f64.sqrt() / 4.0;
        let expected = [
            // Two thirds of the images of class 2 have the cosines −1 and −1/2.
            [0.5, half, -0.5, 0.0],
            [half, 0.0, 0.0, 0.0],
            // One of three pairs has a cosine of 1, the others contain the zero feature.
            [-0.5, 0.0, 1.0 / 3.0, 0.0],
            [0.0; 4],
        ];
        let found = cosines(2, 4, &images);
        assert_eq!(found, expected.map(|row| row.map(rounded).to_vec()));
    }

    /// The mean over all ordered pairs of different images.
    fn by_pairs(classes: u32, images: &[(u32, Vec<f32>)]) -> Vec<Vec<f64>> {
        let wide = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = |a: &[f32], b: &[f32]| {
            let (a, b) = (wide(a), wide(b));
            let lengths = (dot(&a, &a) * dot(&b, &b)).sqrt();
            if lengths > 0.0 { dot(&a, &b) / lengths } else { 0.0 }
        };
        let mean = |i: u32, j: u32| {
            let (mut sum, mut pairs) = (0.0, 0);
            for (first, (a, x)) in images.iter().enumerate() {
                for (second, (b, y)) in images.iter().enumerate() {
                    if first != second && (*a, *b) == (i, j) {
                        sum += cosine(x, y);
                        pairs += 1;
                    }
                }
            }
            if pairs > 0 { sum / f64::from(pairs) } else { 0.0 }
        };
        (0..classes).map(|i| (0..classes).map(|j| mean(i, j)).collect()).collect()
    }

    proptest! {
        #[test]
        fn cosines_are_the_mean_over_all_pairs(
            images in prop::collection::vec(
                (0u32..4, prop::collection::vec(prop_oneof![Just(0f32), -9f32..9.0], 3)),
                0..30,
            )
        ) {
            let found = cosines(3, 4, &images);
            for (found, expected) in found.concat().iter().zip(by_pairs(4, &images).concat()) {
                prop_assert!((found - expected).abs() < 0.5001e-4, "{found}, not {expected}");
            }
        }
    }

    #[test]
    fn a_plane_has_equally_many_images_of_each_class_with_short_numbers() {
        let count = 6000u16;
        let features: Vec<f32> = (0..2 * count).map(|i| 1.0 + f32::from(i) / 12_345.0).collect();
        let labels: Vec<u32> = (0..u32::from(count)).map(|i| i % 3).collect();
        let weights = [0.123_456, -7.654_321e-5, 0.0, 1.0, 98_765.4, 1.0];
        let plane = Plane::of(&features, &labels, &weights).unwrap();
        assert_eq!(plane.weights, [[0.1235, -7.654e-5], [0.0, 1.0], [98_770.0, 1.0]]);
        assert_eq!((plane.labels.len(), plane.features.len()), (1998, 1998));
        for class in 0..3 {
            assert_eq!(plane.labels.iter().filter(|label| **label == class).count(), 666);
        }
        // The first of class 1 is image 1, the second image 1 + 3 · 3.
        assert_eq!(plane.features[666], [short(features[2]), short(features[3])]);
        assert_eq!(plane.features[667], [short(features[20]), short(features[21])]);
        assert!(serde_json::to_string(&plane.features[667]).unwrap().len() <= 13);
        assert_eq!(Plane::of(&[f32::NAN, 0.0], &[0], &weights), None);
    }

    #[test]
    fn the_angle_between_classes_is_that_of_their_mean_directions() {
        // Two images of each class, 20° apart, around 0°, 40° and 100°.
        let at = |degrees: f32| {
            let angle = degrees.to_radians();
            vec![angle.cos(), angle.sin()]
        };
        let middles = [0.0, 40.0, 100.0];
        let images: Vec<(u32, Vec<f32>)> = (0u32..)
            .zip(middles)
            .flat_map(|(class, middle)| {
                // Many images, because a pair of an image and itself does not count.
                (0..400)
                    .map(move |image| (class, if image % 2 == 0 { -10.0 } else { 10.0 } + middle))
            })
            .map(|(class, degrees)| (class, at(degrees)))
            .collect();
        let details = TestDetails { wrong: vec![], cosines: cosines(2, 3, &images), plane: None };
        let angle = details.angle_between_classes().unwrap();
        assert!((angle - (40.0 + 40.0 + 60.0) / 3.0).abs() < 0.1, "{angle}");
        let none = TestDetails { cosines: vec![], ..details.clone() };
        assert_eq!(none.angle_between_classes(), None);
        let one = TestDetails { cosines: vec![vec![1.0]], ..details };
        assert_eq!(one.angle_between_classes(), None);
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!([0.0, -0.123_456, 12_345.6].map(short), [0.0, -0.1235, 12_350.0]);
        assert!(rounded(-1e-9).is_sign_positive());
    }
}

//! Features as a search index: every image is searched among all others by the cosine of their features.

use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::evaluate::norm;

/// The number of images that are searched at a time.
const QUERIES: usize = 256;

/// How often the nearest neighbours of an image are of its class.
///
/// Every image is a query, and all other images, ordered by the cosine of their features to the query's,
/// are its result; images without another one of their class are no queries. The search is exact. Of
/// equal cosines, the image with the lower index is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retrieval {
    /// The number of queries.
    pub queries: usize,
    /// The share of queries whose nearest image is of their class.
    pub recall_at_1: f64,
    /// The share of queries with an image of their class among the five nearest.
    pub recall_at_5: f64,
    /// The mean over queries of the average precision: the precision of the result up to an image of the
    /// query's class, averaged over all such images.
    pub mean_average_precision: f64,
}

impl Retrieval {
    /// Searches every image among all others. `features` has a row of `width` numbers per label; a row of
    /// zeros has a cosine of 0 to every other. `None` if no two images have the same label.
    ///
    /// ```
    /// use lsoftmax_lab::analysis::Retrieval;
    /// let features = [1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 1.0];
    /// let found = Retrieval::of(&features, 2, &[0, 0, 1, 1]).unwrap();
    /// assert_eq!((found.queries, found.recall_at_1), (4, 1.0));
    /// ```
    ///
    /// # Panics
    /// When the number of features is not `width` times the number of labels.
    pub fn of(features: &[f32], width: usize, labels: &[u32]) -> Option<Self> {
        assert_eq!(features.len(), width * labels.len(), "one row of features per label");
        let device = Device::flex();
        let unit = unit_rows(features, width);
        let all: Tensor<2> =
            Tensor::from_data(TensorData::new(unit.clone(), [labels.len(), width]), &device);
        let all = all.transpose();
        let mut sums = Sums::default();
        for (block, rows) in unit.chunks(QUERIES * width).enumerate() {
            let count = rows.len() / width;
            let queries: Tensor<2> =
                Tensor::from_data(TensorData::new(rows.to_vec(), [count, width]), &device);
            let cosines: Vec<f32> = queries.matmul(all.clone()).into_data().iter::<f32>().collect();
            let each = cosines.par_chunks_exact(labels.len()).enumerate();
            let found: Vec<Option<QueryScores>> =
                each.map(|(at, row)| QueryScores::of(row, block * QUERIES + at, labels)).collect();
            found.into_iter().flatten().for_each(|scores| sums.add(scores));
        }
        sums.means()
    }
}

/// The result of one query.
#[derive(Clone, Copy, Debug)]
struct QueryScores {
    /// The number of images of other classes before the first of the query's.
    misses: usize,
    average_precision: f64,
}

impl QueryScores {
    /// `None` if there is no other image of its class.
    fn of(cosines: &[f32], query: usize, labels: &[u32]) -> Option<Self> {
        // The larger the cosine, the smaller the key; then by index.
        let key =
            |(index, cosine): (usize, &f32)| (u64::from(!ascending(*cosine)) << 32) | index as u64;
        let mut keys: Vec<u64> = cosines.iter().enumerate().map(key).collect();
        keys.swap_remove(query);
        keys.sort_unstable();
        let (mut hits, mut misses, mut sum) = (0usize, None, 0.0);
        for (rank, key) in keys.iter().enumerate() {
            let index = (key & u64::from(u32::MAX)) as usize;
            if labels[index] == labels[query] {
                hits += 1;
                misses = misses.or(Some(rank));
                sum += hits as f64 / (rank + 1) as f64;
            }
        }
        misses.map(|misses| Self { misses, average_precision: sum / hits as f64 })
    }
}

#[derive(Default)]
struct Sums {
    queries: usize,
    at_1: usize,
    at_5: usize,
    average_precision: f64,
}

impl Sums {
    fn add(&mut self, scores: QueryScores) {
        self.queries += 1;
        self.at_1 += usize::from(scores.misses < 1);
        self.at_5 += usize::from(scores.misses < 5);
        self.average_precision += scores.average_precision;
    }

    fn means(self) -> Option<Retrieval> {
        let mean = |sum: f64| sum / self.queries as f64;
        (self.queries > 0).then(|| Retrieval {
            queries: self.queries,
            recall_at_1: mean(self.at_1 as f64),
            recall_at_5: mean(self.at_5 as f64),
            mean_average_precision: mean(self.average_precision),
        })
    }
}

/// Bits in the order of the numbers.
fn ascending(value: f32) -> u32 {
    // Adding 0 makes −0 equal to 0.
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn unit_rows(features: &[f32], width: usize) -> Vec<f32> {
    let mut unit = Vec::with_capacity(features.len());
    for row in features.chunks_exact(width) {
        let length = norm(row);
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        unit.extend(row.iter().map(|value| (f64::from(*value) * scale) as f32));
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_the_numbers() {
        let sorted = [f32::NEG_INFINITY, -1.0, -1e-40, 0.0, 1e-40, 0.5, 1.0];
        assert!(sorted.windows(2).all(|pair| ascending(pair[0]) < ascending(pair[1])));
        assert_eq!(ascending(-0.0), ascending(0.0));
    }
}

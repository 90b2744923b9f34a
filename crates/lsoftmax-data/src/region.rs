//! Random parts of an image: enlarged, or erased.

use serde::{Deserialize, Serialize};

use crate::augment::{number_problem, range_problem};
use crate::dataset::Shape;
use crate::random::Random;

/// The number of times a part is drawn that does not fit the image.
const TRIES: usize = 10;

/// A random part of the image is enlarged to its size, by bilinear interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Crop {
    /// The probability.
    pub probability: f64,
    /// The least and the largest area, as fractions of the image's.
    pub area: [f64; 2],
    /// The least and the largest ratio of width to height, relative to the image's.
    pub aspect: [f64; 2],
}

impl Default for Crop {
    /// Always, an area of 0.08 to 1 and an aspect of 3/4 to 4/3, as usual for ImageNet.
    fn default() -> Self {
        Self { probability: 1.0, area: [0.08, 1.0], aspect: [3.0 / 4.0, 4.0 / 3.0] }
    }
}

/// A random part of the image is erased (Zhong et al., 2020): replaced by the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Erase {
    /// The probability.
    pub probability: f64,
    /// The least and the largest area, as fractions of the image's.
    pub area: [f64; 2],
    /// The least and the largest ratio of width to height, relative to the image's.
    pub aspect: [f64; 2],
}

impl Default for Erase {
    /// With probability 1/2, an area of 0.02 to 0.33 and an aspect of 0.3 to 3.3, as in the paper.
    fn default() -> Self {
        Self { probability: 0.5, area: [0.02, 0.33], aspect: [0.3, 3.3] }
    }
}

impl Crop {
    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<(String, String)> {
        problem(self.probability, self.area, self.aspect)
    }

    /// The part of an image, unless it stays whole. If none of several parts fits into the image, it is the
    /// largest one in its middle with an aspect in the range.
    pub(crate) fn draw(&self, shape: Shape, random: &mut Random) -> Option<Region> {
        if random.uniform() >= self.probability {
            return None;
        }
        let drawn = Region::draw(shape, self.area, self.aspect, random);
        Some(drawn.unwrap_or_else(|| Region::central(shape, self.aspect)))
    }
}

impl Erase {
    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<(String, String)> {
        problem(self.probability, self.area, self.aspect)
    }

    /// The part of an image, unless it stays whole; as it does if none of several parts fits into it.
    pub(crate) fn draw(&self, shape: Shape, random: &mut Random) -> Option<Region> {
        if random.uniform() >= self.probability {
            return None;
        }
        Region::draw(shape, self.area, self.aspect, random)
    }
}

fn problem(probability: f64, area: [f64; 2], aspect: [f64; 2]) -> Option<(String, String)> {
    number_problem("probability", probability, (0.0, 1.0))
        .or_else(|| range_problem("area", area, (0.0, 1.0)))
        .or_else(|| range_problem("aspect", aspect, (0.0, f64::INFINITY)))
}

/// A rectangle in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

impl Region {
    /// A rectangle with a uniform area and an aspect whose logarithm is uniform, anywhere in the image;
    /// `None` if several did not fit.
    fn draw(shape: Shape, area: [f64; 2], aspect: [f64; 2], random: &mut Random) -> Option<Self> {
        let Shape { height, width, .. } = shape;
        (0..TRIES).find_map(|_| {
            let area = random.between(area);
            let aspect = random.between(aspect.map(f64::ln)).exp();
            let side = |side: usize, factor: f64| (side as f64 * (area * factor).sqrt()).round();
            let (rows, columns) = (side(height, 1.0 / aspect), side(width, aspect));
            let fits = |side: f64, most: usize| side >= 1.0 && side <= most as f64;
            if !fits(rows, height) || !fits(columns, width) {
                return None;
            }
            let (rows, columns) = (rows as usize, columns as usize);
            Some(Self {
                top: random.below((height - rows) as u64 + 1) as usize,
                left: random.below((width - columns) as u64 + 1) as usize,
                height: rows,
                width: columns,
            })
        })
    }

    /// The largest rectangle in the middle of an image whose aspect, relative to the image's, is in a range.
    fn central(shape: Shape, [least, most]: [f64; 2]) -> Self {
        let part = |side: usize, factor: f64| ((side as f64 * factor).round() as usize).max(1);
        let width = part(shape.width, most.min(1.0));
        let height = part(shape.height, (1.0 / least).min(1.0));
        let (top, left) = ((shape.height - height) / 2, (shape.width - width) / 2);
        Self { top, left, height, width }
    }

    /// The part of an image, enlarged to its size by bilinear interpolation between the centres of pixels.
    pub fn enlarged(&self, image: &[u8], shape: Shape) -> Vec<f32> {
        let rows = interpolation(self.top, self.height, shape.height);
        let columns = interpolation(self.left, self.width, shape.width);
        let mut pixels = Vec::with_capacity(shape.pixels());
        for channel in image.chunks_exact(shape.height * shape.width) {
            let row = |row: usize| &channel[row * shape.width..][..shape.width];
            for (above, below, lower) in &rows {
                let (above, below) = (row(*above), row(*below));
                pixels.extend(columns.iter().map(|(left, right, further)| {
                    let between = |row: &[u8]| {
                        let (left, right) = (f32::from(row[*left]), f32::from(row[*right]));
                        left + further * (right - left)
                    };
                    let (above, below) = (between(above), between(below));
                    above + lower * (below - above)
                }));
            }
        }
        pixels
    }

    /// Fills the part of an image with zeros.
    pub fn fill(&self, shape: Shape, pixels: &mut [f32]) {
        for channel in pixels.chunks_exact_mut(shape.height * shape.width) {
            for row in channel.chunks_exact_mut(shape.width).skip(self.top).take(self.height) {
                row[self.left..][..self.width].fill(0.0);
            }
        }
    }
}

/// For every position of `size`, the two positions of a part of `length` from `start` that it lies between,
/// and the weight of the second.
fn interpolation(start: usize, length: usize, size: usize) -> Vec<(usize, usize, f32)> {
    let ratio = length as f64 / size as f64;
    let position = |index: usize| {
        let place = ((index as f64 + 0.5) * ratio - 0.5).clamp(0.0, (length - 1) as f64);
        let first = place.floor() as usize;
        (start + first, start + (first + 1).min(length - 1), (place - first as f64) as f32)
    };
    (0..size).map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const SHAPE: Shape = Shape { channels: 2, height: 20, width: 30 };

    /// Bilinear interpolation reproduces a linear image, but for the edges, which are repeated.
    #[test]
    fn a_part_of_a_linear_image_is_enlarged_linearly() {
        let value =
            |channel: f64, row: f64, column: f64| 10.0 + 50.0 * channel + 3.0 * row + 2.0 * column;
        let image: Vec<u8> = (0..2 * 20 * 30)
            .map(|i| value((i / 600) as f64, (i / 30 % 20) as f64, (i % 30) as f64) as u8)
            .collect();
        let region = Region { top: 4, left: 7, height: 10, width: 12 };
        let found = region.enlarged(&image, SHAPE);
        assert_eq!(found.len(), image.len());
        for (i, found) in found.into_iter().enumerate() {
            let (row, column) = ((i / 30 % 20) as f64, (i % 30) as f64);
            let row = 4.0 + ((row + 0.5) * 10.0 / 20.0 - 0.5).clamp(0.0, 9.0);
            let column = 7.0 + ((column + 0.5) * 12.0 / 30.0 - 0.5).clamp(0.0, 11.0);
            let expected = value((i / 600) as f64, row, column);
            assert!((f64::from(found) - expected).abs() < 1e-4, "{i}: {found}, not {expected}");
        }
        let whole = Region { top: 0, left: 0, height: 20, width: 30 };
        let same = whole.enlarged(&image, SHAPE).into_iter().zip(&image);
        assert!(same.into_iter().all(|(found, pixel)| found == f32::from(*pixel)));
    }

    #[test]
    fn parts_have_uniform_areas_and_places_and_log_uniform_aspects() {
        let shape = Shape { channels: 1, height: 400, width: 600 };
        let (mut areas, mut logs, mut tops, mut count) = (0.0, 0.0, 0.0, 0);
        for sample in 0..4000 {
            let mut random = Random::new(1, Purpose::Crop, 0, sample);
            let region = Region::draw(shape, [0.1, 0.3], [0.5, 2.0], &mut random).expect("it fits");
            let (height, width) = (region.height as f64 / 400.0, region.width as f64 / 600.0);
            assert!((0.099..0.301).contains(&(height * width)), "{region:?}");
            assert!((0.495..2.02).contains(&(width / height)), "{region:?}");
            assert!(region.top + region.height <= 400 && region.left + region.width <= 600);
            areas += height * width;
            logs += (width / height).ln();
            tops += region.top as f64 / (400 - region.height) as f64;
            count += 1;
        }
        let count = f64::from(count);
        // The standard errors of these means are 0.0009, 0.0063 and 0.0046.
        assert!((areas / count - 0.2).abs() < 0.004, "{}", areas / count);
        assert!((logs / count).abs() < 0.025, "{}", logs / count);
        assert!((tops / count - 0.5).abs() < 0.02, "{}", tops / count);
    }

    #[test]
    fn a_part_that_does_not_fit_becomes_the_largest_in_the_middle() {
        let crop = Crop { probability: 1.0, area: [1.0, 1.0], aspect: [2.0, 2.0] };
        let region = crop.draw(SHAPE, &mut Random::new(1, Purpose::Crop, 0, 0)).expect("a crop");
        assert_eq!(region, Region { top: 5, left: 0, height: 10, width: 30 });
        let erase = Erase { probability: 1.0, area: [1.0, 1.0], aspect: [2.0, 2.0] };
        assert_eq!(erase.draw(SHAPE, &mut Random::new(1, Purpose::Erase, 0, 0)), None);
    }
}

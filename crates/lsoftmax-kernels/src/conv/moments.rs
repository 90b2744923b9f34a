//! Mean and variance of channels, computed per task and combined in a fixed order.

use super::epilogue::ChannelRow;
use super::layout::{CHANNELS, FOLDED, FeatureMap};
use super::share::BatchShare;
use super::stack::Moments;
use crate::kernel::Simd;
use crate::lanes::Lanes;

/// The statistics of one task: a block of images, or some of its rows.
#[derive(Clone, Debug)]
pub(super) struct BlockMoments {
    groups: Vec<GroupMoments>,
    map: FeatureMap,
    /// In a folded map, the rows whose second image is missing.
    half_rows: usize,
}

/// Sums of 32 channels' differences from a pivot, which keeps the squares small.
#[derive(Clone, Debug)]
struct GroupMoments {
    count: usize,
    pivot: ChannelRow,
    sum: [f64; CHANNELS],
    squares: [f64; CHANNELS],
}

/// Rows whose sums are accumulated in f32.
const F32_SUM_ROWS: usize = 256;

/// Recomputes in f64 the sums of squares that overflowed f32.
#[cold]
fn sum_squares_in_f64(rows: &[ChannelRow], pivot: &ChannelRow, squares: &mut [f64; CHANNELS]) {
    for (c, squares) in squares.iter_mut().enumerate().filter(|(_, squares)| squares.is_infinite())
    {
        let distance = |row: &ChannelRow| f64::from(row[c]) - f64::from(pivot[c]);
        *squares = rows.iter().map(|row| distance(row).powi(2)).sum();
    }
}

impl BlockMoments {
    pub fn new(map: FeatureMap) -> Self {
        let group = GroupMoments {
            count: 0,
            pivot: [0.0; CHANNELS],
            sum: [0.0; CHANNELS],
            squares: [0.0; CHANNELS],
        };
        Self { groups: vec![group; map.groups()], map, half_rows: 0 }
    }

    /// Adds some pixels' rows of 32 numbers. A missing image of a folded map is overwritten.
    #[inline(always)]
    pub fn add<S: Simd>(&mut self, simd: S, group: usize, rows: &mut [f32], live: usize) {
        let group = &mut self.groups[group];
        let rows = rows.as_chunks_mut::<CHANNELS>().0;
        if group.count == 0 {
            // Any value of the channel is likely to be closer to its mean than zero is.
            group.pivot = rows[0];
        }
        if self.map.row_images(live) != live {
            // A distance of zero from the pivot does not count.
            for pixel in rows.chunks_exact_mut(self.map.rows(live)) {
                let last = pixel.last_mut().expect("a row");
                last[FOLDED..].copy_from_slice(&group.pivot[FOLDED..]);
                self.half_rows += 1;
            }
        }
        group.count += rows.len();
        let pivot = simd.lanes(&group.pivot);
        for rows in rows.chunks(F32_SUM_ROWS) {
            let zero = simd.lanes(&[0.0; CHANNELS]);
            let (mut sum, mut squares) = (zero, zero);
            for row in rows {
                let distance = simd.lanes(row).sub(pivot);
                sum = sum.add(distance);
                squares = distance.mul_add(distance, squares);
            }
            let (sum, squares) = (sum.to_array(), squares.to_array());
            let mut long = squares.map(f64::from);
            if squares.iter().any(|squares| squares.is_infinite()) {
                sum_squares_in_f64(rows, &group.pivot, &mut long);
            }
            for c in 0..CHANNELS {
                group.sum[c] += f64::from(sum[c]);
                group.squares[c] += long[c];
            }
        }
    }

    /// The statistics of all tasks of all ranks.
    pub fn combine(tasks: &[Self], channels: usize, share: &BatchShare) -> Moments {
        let tasks = tasks.iter().map(|task| task.flat(channels)).collect();
        let merged = share.reduce(tasks, merge);
        let (count, numbers) = merged.split_first().expect("a count");
        let (mean, squares) = numbers.split_at(channels);
        // Rounding may make a variance of zero negative. A NaN is kept.
        let variance = |squares: &f64| match squares / count {
            variance if variance < 0.0 => 0.0,
            variance => variance as f32,
        };
        Moments {
            mean: mean.iter().map(|mean| *mean as f32).collect(),
            variance: squares.iter().map(variance).collect(),
        }
    }

    /// The number of values per channel, the means, and the sums of squared distances from them.
    fn flat(&self, channels: usize) -> Vec<f64> {
        let rows = self.groups[0].count;
        let mut all = self.lanes(channels, 0, rows);
        if self.map.folded && rows > self.half_rows {
            merge(&mut all, &self.lanes(channels, FOLDED, rows - self.half_rows));
        }
        all
    }

    /// The same of the images of a row whose channels are in the lanes from `start` on, of which there are `count`.
    fn lanes(&self, channels: usize, start: usize, count: usize) -> Vec<f64> {
        let count = count as f64;
        let mut numbers = vec![0.0; 1 + 2 * channels];
        let (first, numbers_of_channels) = numbers.split_at_mut(1);
        first[0] = count;
        let (means, squares) = numbers_of_channels.split_at_mut(channels);
        for (channel, (mean, squares)) in means.iter_mut().zip(squares).enumerate() {
            let (group, c) = (&self.groups[channel / CHANNELS], start + channel % CHANNELS);
            let offset = group.sum[c] / count;
            *mean = f64::from(group.pivot[c]) + offset;
            *squares = group.squares[c] - group.sum[c] * offset;
        }
        numbers
    }
}

/// Adds the statistics of more values, as [`BlockMoments::flat`] has them.
fn merge(left: &mut [f64], right: &[f64]) {
    let (count, more) = (left[0], right[0]);
    let channels = left.len() / 2;
    left[0] = count + more;
    for channel in 1..=channels {
        let apart = right[channel] - left[channel];
        left[channel] += apart * more / (count + more);
        left[channels + channel] +=
            right[channels + channel] + apart * apart * count * more / (count + more);
    }
}

//! Mean and variance of channels, computed per block of images and combined in a fixed order.

use super::epilogue::ChannelRow;
use super::layout::CHANNELS;
use super::stack::Moments;
use crate::kernel::Simd;
use crate::lanes::Lanes;

/// The statistics of one block of images.
#[derive(Clone, Debug)]
pub(super) struct BlockMoments {
    groups: Vec<GroupMoments>,
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
    pub fn new(groups: usize) -> Self {
        let group = GroupMoments {
            count: 0,
            pivot: [0.0; CHANNELS],
            sum: [0.0; CHANNELS],
            squares: [0.0; CHANNELS],
        };
        Self { groups: vec![group; groups] }
    }

    /// Adds rows of 32 channels.
    #[inline(always)]
    pub fn add<S: Simd>(&mut self, simd: S, group: usize, rows: &[f32]) {
        let group = &mut self.groups[group];
        let rows = rows.as_chunks::<CHANNELS>().0;
        if group.count == 0 {
            // Any value of the channel is likely to be closer to its mean than zero is.
            group.pivot = rows[0];
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

    /// The statistics of all blocks, combined in order.
    pub fn combine(blocks: &[Self], channels: usize) -> Moments {
        let mut moments = Moments::default();
        for channel in 0..channels {
            let (group, c) = (channel / CHANNELS, channel % CHANNELS);
            let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
            for block in blocks {
                let block = &block.groups[group];
                let more = block.count as f64;
                let offset = block.sum[c] / more;
                let more_squares = block.squares[c] - block.sum[c] * offset;
                let apart = f64::from(block.pivot[c]) + offset - mean;
                squares += more_squares + apart * apart * count * more / (count + more);
                mean += apart * more / (count + more);
                count += more;
            }
            // Rounding may make a variance of zero negative. A NaN is kept.
            let variance = squares / count;
            moments.mean.push(mean as f32);
            moments.variance.push(if variance < 0.0 { 0.0 } else { variance as f32 });
        }
        moments
    }
}

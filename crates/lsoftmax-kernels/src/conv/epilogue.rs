//! The epilogue of a convolution: batch norm, activation and max pooling of one block of images.
//!
//! A unit stores only the result of its convolution, z. The epilogue, a = PReLU(scale · z + shift) and
//! the maximum over 2x2 pixels, is computed when it is read: by the next unit's forward pass and by
//! the backward passes, which recompute the maximum rather than store its position. ReLU is PReLU with a slope
//! of 0, and no activation is one with a slope of 1.
//!
//! The sum of a residual unit is stored as well (see `shortcut`). Its epilogue, an activation or nothing, has a
//! scale of 1.

use std::ops::Range;

use super::EPSILON;
use super::conv_kernel::{ConvKernel, KernelLanes};
use super::layout::{CHANNELS, FOLDED, FeatureMap, MapRows};
use super::shortcut::Upstream;
use super::stack::{Moments, Parameters};
use super::unit::Activation;
use crate::kernel::Simd;
use crate::lanes::Lanes;

/// One number for each of 32 channels.
pub(super) type ChannelRow = [f32; CHANNELS];

/// Batch norm, folded into a scale and a shift, and the activation of 32 channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    pub scale: ChannelRow,
    pub shift: ChannelRow,
    pub slope: ChannelRow,
    pub mean: ChannelRow,
    /// The reciprocal of the standard deviation.
    pub inverse: ChannelRow,
}

impl Affine {
    /// The same for both images of a row of a folded map.
    fn fold(&mut self) {
        let rows =
            [&mut self.scale, &mut self.shift, &mut self.slope, &mut self.mean, &mut self.inverse];
        rows.into_iter().for_each(|row| row.copy_within(..FOLDED, FOLDED));
    }

    /// One for each channel group of a map. Channels beyond the last are zero.
    pub fn new(
        map: FeatureMap,
        activation: Activation,
        parameters: &Parameters<'_>,
        moments: &Moments,
    ) -> Vec<Self> {
        let mut all = Self::activation(map, activation, parameters.slope);
        if parameters.gamma.is_empty() {
            return all;
        }
        for channel in 0..map.channels {
            let (affine, i) = (&mut all[channel / CHANNELS], channel % CHANNELS);
            affine.mean[i] = moments.mean[channel];
            affine.inverse[i] = 1.0 / (moments.variance[channel] + EPSILON).sqrt();
            affine.scale[i] = parameters.gamma[channel] * affine.inverse[i];
            affine.shift[i] = parameters.beta[channel] - affine.mean[i] * affine.scale[i];
        }
        if map.folded {
            all.iter_mut().for_each(Self::fold);
        }
        all
    }

    /// An activation without batch norm.
    pub fn activation(map: FeatureMap, activation: Activation, slopes: &[f32]) -> Vec<Self> {
        let mut all = vec![Self::ZERO; map.groups()];
        for channel in 0..map.channels {
            let (affine, i) = (&mut all[channel / CHANNELS], channel % CHANNELS);
            affine.scale[i] = 1.0;
            affine.slope[i] = match activation {
                Activation::None => 1.0,
                Activation::Relu => 0.0,
                Activation::Prelu => slopes[channel],
            };
        }
        if map.folded {
            all.iter_mut().for_each(Self::fold);
        }
        all
    }

    const ZERO: Self = Self {
        scale: [0.0; CHANNELS],
        shift: [0.0; CHANNELS],
        slope: [0.0; CHANNELS],
        mean: [0.0; CHANNELS],
        inverse: [0.0; CHANNELS],
    };
}

/// An [`Affine`] in registers.
#[derive(Clone, Copy)]
pub(super) struct AffineLanes<L> {
    scale: L,
    shift: L,
    pub slope: L,
    mean: L,
    pub zero: L,
}

impl<L: Lanes> AffineLanes<L> {
    #[inline(always)]
    pub fn new<K: ConvKernel>(kernel: K, affine: &Affine) -> Self
    where
        K::Simd: Simd<Lanes = L>,
    {
        Self {
            scale: kernel.ordered(&affine.scale),
            shift: kernel.ordered(&affine.shift),
            slope: kernel.ordered(&affine.slope),
            mean: kernel.ordered(&affine.mean),
            zero: kernel.ordered(&[0.0; CHANNELS]),
        }
    }

    /// The input of the activation, u.
    #[inline(always)]
    fn normed(&self, z: L) -> L {
        z.mul_add(self.scale, self.shift)
    }

    /// The output of the activation, a.
    #[inline(always)]
    pub fn activated(&self, z: L) -> L {
        let u = self.normed(z);
        u.select(u.greater(self.zero), u.mul(self.slope))
    }
}

/// What turns a unit's convolution, or its sum with a shortcut, into its output.
#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a> {
    /// One per channel group.
    pub affine: &'a [Affine],
    pub pool: bool,
    /// After the convolution.
    pub map: FeatureMap,
    /// After pooling.
    pub pooled: FeatureMap,
}

/// Rows of words ahead of the current one that are asked for.
const PREFETCHED_ROWS: usize = 32;

impl Epilogue<'_> {
    /// Calls `visit(group, pixel, row, a)` for every row of words of some rows of the unit's output.
    #[inline(always)]
    pub fn outputs<K: ConvKernel>(
        self,
        kernel: K,
        z: &[K::Word],
        rows: Range<usize>,
        live: usize,
        mut visit: impl FnMut(usize, usize, usize, KernelLanes<K>),
    ) {
        for (group, affine) in self.affine.iter().enumerate() {
            let affine = AffineLanes::new(kernel, affine);
            for pixel in rows.start * self.pooled.width..rows.end * self.pooled.width {
                let window = PoolWindow::new(self.map, self.pooled, pixel);
                for row in 0..self.map.rows(live) {
                    let a = self.output(kernel, &affine, z, group, (pixel, &window), row);
                    visit(group, pixel, row, a);
                }
            }
        }
    }

    /// One pixel of the unit's output; `window` is that of the pixel.
    #[inline(always)]
    pub fn output<K: ConvKernel>(
        self,
        kernel: K,
        affine: &AffineLanes<KernelLanes<K>>,
        z: &[K::Word],
        group: usize,
        (pixel, window): (usize, &PoolWindow),
        row: usize,
    ) -> KernelLanes<K> {
        if !self.pool {
            return affine.activated(self.row(kernel, z, group, pixel, row));
        }
        let mut best = affine.activated(self.row(kernel, z, group, window.pixels[0], row));
        for other in 1..4 {
            if window.exists[other] {
                let z = self.row(kernel, z, group, window.pixels[other], row);
                let a = affine.activated(z);
                best = a.select(a.greater_or_nan(best), best);
            }
        }
        best
    }

    #[inline(always)]
    pub fn row<K: ConvKernel>(
        self,
        kernel: K,
        words: &[K::Word],
        group: usize,
        pixel: usize,
        row: usize,
    ) -> KernelLanes<K> {
        let offset = self.map.offset::<K>(group, pixel, row);
        prefetch_row(kernel, words, offset);
        kernel.decode(&words[offset..])
    }

    /// The rows of a window's pixels, where they exist.
    #[inline(always)]
    fn window<K: ConvKernel>(
        self,
        kernel: K,
        words: &[K::Word],
        group: usize,
        window: &PoolWindow,
        row: usize,
    ) -> [KernelLanes<K>; 4] {
        let mut rows = [self.row(kernel, words, group, window.pixels[0], row); 4];
        for (index, other) in rows.iter_mut().enumerate().skip(1) {
            if window.exists[index] {
                *other = self.row(kernel, words, group, window.pixels[index], row);
            }
        }
        rows
    }

    /// The z that a pixel of the unit's output is computed from: with pooling, that of the largest pixel.
    #[inline(always)]
    pub fn winner<K: ConvKernel>(
        self,
        kernel: K,
        affine: &AffineLanes<KernelLanes<K>>,
        z: &[K::Word],
        group: usize,
        (pixel, window): (usize, &PoolWindow),
        row: usize,
    ) -> KernelLanes<K> {
        if !self.pool {
            return self.row(kernel, z, group, pixel, row);
        }
        window.largest(affine, self.window(kernel, z, group, window, row))
    }

    /// Writes the gradient of the convolution's output, with zeros for missing images, for some rows of the
    /// unit's output: with pooling, two rows of the convolution each.
    pub fn gradient<K: ConvKernel>(
        self,
        kernel: K,
        (z, upstream): (&[K::Word], Upstream<'_, K>),
        norm: &[NormBackward],
        rows: Range<usize>,
        live: usize,
        dz: &mut MapRows<'_, K>,
    ) {
        let pixels = rows.start * self.pooled.width..rows.end * self.pooled.width;
        kernel.vectorize(
            #[inline(always)]
            || {
                for (group, (affine, norm)) in self.affine.iter().zip(norm).enumerate() {
                    let norm = NormLanes::new(kernel, affine, norm);
                    let zero = norm.affine.zero;
                    let upstream = upstream.group(kernel, group);
                    for pixel in pixels.clone() {
                        let window = PoolWindow::new(self.map, self.pooled, pixel);
                        for row in 0..self.map.rows(live) {
                            let dy = upstream.at(kernel, pixel, row);
                            if !self.pool {
                                let z = self.row(kernel, z, group, pixel, row);
                                let out = &mut dz.pixels_mut(group, pixel)[row * K::ROW_WORDS..];
                                kernel.encode_lanes(norm.gradient(z, dy), out);
                                continue;
                            }
                            // The output's gradient goes to the pixel that is the maximum.
                            let rows = self.window(kernel, z, group, &window, row);
                            let mut da = [dy, zero, zero, zero];
                            let mut best = norm.affine.activated(rows[0]);
                            for other in 1..4 {
                                if window.exists[other] {
                                    let a = norm.affine.activated(rows[other]);
                                    let wins = a.greater_or_nan(best);
                                    best = a.select(wins, best);
                                    for da in &mut da[..other] {
                                        *da = zero.select(wins, *da);
                                    }
                                    da[other] = dy.select(wins, zero);
                                }
                            }
                            for index in 0..4 {
                                if window.exists[index] {
                                    let out = dz.pixels_mut(group, window.pixels[index]);
                                    let out = &mut out[row * K::ROW_WORDS..];
                                    kernel.encode_lanes(norm.gradient(rows[index], da[index]), out);
                                }
                            }
                        }
                    }
                }
                let rows = if self.pool { 2 * rows.start..2 * rows.end } else { rows };
                let width = self.map.width;
                let end = rows.end.min(self.map.height) * width;
                dz.zero_padding_images(rows.start * width..end, live);
            },
        );
    }
}

/// The pixels of a 2x2 pooling window. At the right or lower edge of an odd size, some do not exist.
#[derive(Clone, Copy)]
pub(super) struct PoolWindow {
    pixels: [usize; 4],
    exists: [bool; 4],
}

impl PoolWindow {
    /// The window of a pixel of `pooled`.
    #[inline(always)]
    pub fn new(map: FeatureMap, pooled: FeatureMap, pixel: usize) -> Self {
        let (y, x) = (2 * (pixel / pooled.width), 2 * (pixel % pooled.width));
        let first = y * map.width + x;
        let (wide, high) = (x + 1 < map.width, y + 1 < map.height);
        let pixels = [first, first + 1, first + map.width, first + map.width + 1];
        Self { pixels, exists: [true, wide, high, wide && high] }
    }

    /// Of the rows of its pixels, the one with the largest activation: the first of equal ones, a NaN if there
    /// is one.
    #[inline(always)]
    fn largest<L: Lanes>(&self, affine: &AffineLanes<L>, rows: [L; 4]) -> L {
        let mut z = rows[0];
        let mut best = affine.activated(z);
        for (row, exists) in rows.into_iter().zip(self.exists).skip(1) {
            if exists {
                let a = affine.activated(row);
                let wins = a.greater_or_nan(best);
                best = a.select(wins, best);
                z = row.select(wins, z);
            }
        }
        z
    }
}

/// Asks for the row of words that will be read after some others.
#[inline(always)]
pub(super) fn prefetch_row<K: ConvKernel>(kernel: K, words: &[K::Word], offset: usize) {
    let ahead = words.as_ptr().wrapping_add(offset + PREFETCHED_ROWS * K::ROW_WORDS);
    kernel.simd().prefetch(ahead);
}

/// Pixels whose sums are accumulated in f32.
pub(super) const F32_SUM_PIXELS: usize = 16;

/// Sums over pixels and images, one per channel: Σ du, Σ du · ẑ, and Σ dy · u over non-positive u.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradientSums {
    pub du: [f64; CHANNELS],
    pub du_hat: [f64; CHANNELS],
    pub dy_u: [f64; CHANNELS],
}

impl Default for GradientSums {
    fn default() -> Self {
        Self { du: [0.0; CHANNELS], du_hat: [0.0; CHANNELS], dy_u: [0.0; CHANNELS] }
    }
}

impl GradientSums {
    /// Of a folded map: those of both images of a row, for both.
    pub fn fold(&mut self) {
        for sums in [&mut self.du, &mut self.du_hat, &mut self.dy_u] {
            for c in 0..FOLDED {
                sums[c] += sums[FOLDED + c];
                sums[FOLDED + c] = sums[c];
            }
        }
    }

    /// All sums in one list.
    pub fn flat(&self) -> [f64; 3 * CHANNELS] {
        let mut numbers = [0.0; 3 * CHANNELS];
        let sums = [&self.du, &self.du_hat, &self.dy_u];
        for (numbers, sums) in numbers.chunks_exact_mut(CHANNELS).zip(sums) {
            numbers.copy_from_slice(sums);
        }
        numbers
    }

    /// From the list of [`GradientSums::flat`].
    pub fn from_flat(numbers: &[f64]) -> Self {
        let (sums, _) = numbers.as_chunks::<CHANNELS>();
        Self { du: sums[0], du_hat: sums[1], dy_u: sums[2] }
    }
}

/// [`GradientSums`] of a few terms, in f32. Instead of ẑ, it has z − mean, which is σ times as large.
#[derive(Clone, Copy)]
pub(super) struct LaneSums<L> {
    du: L,
    du_z: L,
    pub dy_u: L,
}

impl<L: Lanes> LaneSums<L> {
    #[inline(always)]
    pub fn new(affine: &AffineLanes<L>) -> Self {
        Self { du: affine.zero, du_z: affine.zero, dy_u: affine.zero }
    }

    #[inline(always)]
    pub fn add(&mut self, affine: &AffineLanes<L>, z: L, dy: L) {
        let u = affine.normed(z);
        let positive = u.greater(affine.zero);
        let du = dy.select(positive, dy.mul(affine.slope));
        self.du = self.du.add(du);
        self.du_z = du.mul_add(z.sub(affine.mean), self.du_z);
        self.dy_u = self.dy_u.add(affine.zero.select(positive, dy.mul(u)));
    }

    #[inline(always)]
    pub fn add_to<K: ConvKernel>(self, kernel: K, affine: &Affine, sums: &mut GradientSums)
    where
        K::Simd: Simd<Lanes = L>,
    {
        let [du, du_z, dy_u] = [self.du, self.du_z, self.dy_u].map(|lanes| kernel.channels(lanes));
        for c in 0..CHANNELS {
            sums.du[c] += f64::from(du[c]);
            sums.du_hat[c] += f64::from(du_z[c]) * f64::from(affine.inverse[c]);
            sums.dy_u[c] += f64::from(dy_u[c]);
        }
    }
}

/// The gradient of 32 channels through batch norm's mean and variance, in addition to `scale · du`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormBackward {
    /// Through the variance: to be multiplied by z − mean.
    variance_factor: ChannelRow,
    /// Through the mean.
    mean_term: ChannelRow,
}

impl NormBackward {
    /// With batch norm, whose statistics are over `count` values.
    pub fn new(affine: &Affine, sums: &GradientSums, count: usize) -> Self {
        let mut backward = Self::NONE;
        for c in 0..CHANNELS {
            let (du, du_hat) = (sums.du[c] / count as f64, sums.du_hat[c] / count as f64);
            backward.variance_factor[c] = -affine.scale[c] * affine.inverse[c] * du_hat as f32;
            backward.mean_term[c] = -affine.scale[c] * du as f32;
        }
        backward
    }

    /// Without batch norm, or at fixed statistics.
    pub const NONE: Self = Self { variance_factor: [0.0; CHANNELS], mean_term: [0.0; CHANNELS] };
}

/// An [`Affine`] and a [`NormBackward`] in registers.
struct NormLanes<L> {
    affine: AffineLanes<L>,
    variance_factor: L,
    mean_term: L,
}

impl<L: Lanes> NormLanes<L> {
    #[inline(always)]
    fn new<K: ConvKernel>(kernel: K, affine: &Affine, norm: &NormBackward) -> Self
    where
        K::Simd: Simd<Lanes = L>,
    {
        Self {
            affine: AffineLanes::new(kernel, affine),
            variance_factor: kernel.ordered(&norm.variance_factor),
            mean_term: kernel.ordered(&norm.mean_term),
        }
    }

    /// dz, given the gradient of the activation.
    #[inline(always)]
    fn gradient(&self, z: L, da: L) -> L {
        let positive = self.affine.normed(z).greater(self.affine.zero);
        let du = da.select(positive, da.mul(self.affine.slope));
        let rest = z.sub(self.affine.mean).mul_add(self.variance_factor, self.mean_term);
        du.mul_add(self.affine.scale, rest)
    }
}

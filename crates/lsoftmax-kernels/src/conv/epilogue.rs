//! The epilogue of a convolution: batch norm, PReLU and max pooling of one block of images.
//!
//! A unit stores only the result of its convolution, z. The epilogue, a = PReLU(scale · z + shift) and
//! the maximum over 2x2 pixels, is computed when it is read: by the next unit's forward pass and by
//! the backward passes, which recompute the maximum rather than store its position.

use super::EPSILON;
use super::conv_kernel::ConvKernel;
use super::layout::{CHANNELS, FeatureMap, IMAGES};
use super::stack::{Moments, Parameters};
use crate::kernel::Simd;

/// One number for each of 32 channels.
pub(super) type ChannelRow = [f32; CHANNELS];

/// Calls `value` for each of 32 channels. (`std::array::from_fn` is not always inlined, and then not
/// compiled for the path's instructions.)
#[inline(always)]
pub(super) fn channel_row(mut value: impl FnMut(usize) -> f32) -> ChannelRow {
    let mut row = [0.0; CHANNELS];
    for (c, number) in row.iter_mut().enumerate() {
        *number = value(c);
    }
    row
}

/// Batch norm, folded into a scale and a shift, and PReLU of 32 channels.
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
    /// One for each group of `channels` channels. Channels beyond the last are zero.
    pub fn new(channels: usize, parameters: &Parameters<'_>, moments: &Moments) -> Vec<Self> {
        let norm = !parameters.gamma.is_empty();
        (0..channels)
            .step_by(CHANNELS)
            .map(|start| {
                let mut affine = Self::ZERO;
                for channel in start..channels.min(start + CHANNELS) {
                    let i = channel - start;
                    affine.slope[i] = parameters.slope.get(channel).copied().unwrap_or(1.0);
                    if norm {
                        affine.mean[i] = moments.mean[channel];
                        affine.inverse[i] = 1.0 / (moments.variance[channel] + EPSILON).sqrt();
                        affine.scale[i] = parameters.gamma[channel] * affine.inverse[i];
                        affine.shift[i] =
                            parameters.beta[channel] - affine.mean[i] * affine.scale[i];
                    } else {
                        affine.scale[i] = 1.0;
                    }
                }
                affine
            })
            .collect()
    }

    const ZERO: Self = Self {
        scale: [0.0; CHANNELS],
        shift: [0.0; CHANNELS],
        slope: [0.0; CHANNELS],
        mean: [0.0; CHANNELS],
        inverse: [0.0; CHANNELS],
    };

    /// The input of PReLU, u.
    #[inline(always)]
    fn normed<S: Simd>(&self, z: &ChannelRow) -> ChannelRow {
        channel_row(|c| S::mul_add(self.scale[c], z[c], self.shift[c]))
    }

    /// The output of PReLU, a.
    #[inline(always)]
    pub fn activated<S: Simd>(&self, z: &ChannelRow) -> ChannelRow {
        self.prelu(&self.normed::<S>(z))
    }

    #[inline(always)]
    fn prelu(&self, u: &ChannelRow) -> ChannelRow {
        channel_row(|c| if u[c] > 0.0 { u[c] } else { self.slope[c] * u[c] })
    }
}

/// What turns a unit's convolution into its output.
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

/// The 2x2 window of a pooled pixel: its first pixel, and its width and height, which are 1 at the
/// right or lower edge of an odd size.
#[inline(always)]
fn pool_window(map: FeatureMap, pooled: FeatureMap, pixel: usize) -> (usize, usize, usize) {
    let (y, x) = (2 * (pixel / pooled.width), 2 * (pixel % pooled.width));
    (y * map.width + x, (map.width - x).min(2), (map.height - y).min(2))
}

impl Epilogue<'_> {
    /// Calls `visit(group, pixel, image, a)` for every pixel of the unit's output.
    #[inline(always)]
    pub fn outputs<K: ConvKernel>(
        self,
        kernel: K,
        z: &[K::Word],
        live: usize,
        mut visit: impl FnMut(usize, usize, usize, &ChannelRow),
    ) {
        for (group, affine) in self.affine.iter().enumerate() {
            for pixel in 0..self.pooled.pixels() {
                for image in 0..live {
                    let row = |pixel| self.row(kernel, z, group, pixel, image);
                    if !self.pool {
                        visit(group, pixel, image, &affine.activated::<K::Simd>(&row(pixel)));
                        continue;
                    }
                    let (first, wide, high) = pool_window(self.map, self.pooled, pixel);
                    let mut best = affine.activated::<K::Simd>(&row(first));
                    for other in 1..4 {
                        if other % 2 < wide && other / 2 < high {
                            let at = first + other / 2 * self.map.width + other % 2;
                            let a = affine.activated::<K::Simd>(&row(at));
                            best = channel_row(|c| max_or_nan(a[c], best[c]));
                        }
                    }
                    visit(group, pixel, image, &best);
                }
            }
        }
    }

    #[inline(always)]
    fn row<K: ConvKernel>(
        self,
        kernel: K,
        words: &[K::Word],
        group: usize,
        pixel: usize,
        image: usize,
    ) -> ChannelRow {
        kernel.decode(&words[self.map.offset::<K>(group, pixel, image)..])
    }

    /// Writes the unit's output as the next unit's input, with zeros for missing images.
    pub fn write<K: ConvKernel>(self, kernel: K, z: &[K::Word], live: usize, out: &mut [K::Word]) {
        kernel.vectorize(
            #[inline(always)]
            || {
                self.outputs(
                    kernel,
                    z,
                    live,
                    #[inline(always)]
                    |group, pixel, image, a| {
                        let offset = self.pooled.offset::<K>(group, pixel, image);
                        kernel.encode(a, &mut out[offset..]);
                    },
                );
                zero_padding_images::<K>(out, live);
            },
        );
    }

    /// Calls `visit(group, pixel of the map, image, z, u, da)` for every pixel, where `da` is the
    /// output's gradient. With pooling, `da` is zero in the channels whose maximum is another pixel of
    /// the window.
    #[inline(always)]
    fn gradients<K: ConvKernel>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        live: usize,
        mut visit: impl FnMut(usize, usize, usize, &ChannelRow, &ChannelRow, &ChannelRow),
    ) {
        for (group, affine) in self.affine.iter().enumerate() {
            for pixel in 0..self.pooled.pixels() {
                for image in 0..live {
                    let dy = kernel.decode(&dy[self.pooled.offset::<K>(group, pixel, image)..]);
                    let row = |pixel| self.row(kernel, z, group, pixel, image);
                    if !self.pool {
                        let z = row(pixel);
                        visit(group, pixel, image, &z, &affine.normed::<K::Simd>(&z), &dy);
                        continue;
                    }
                    let (first, wide, high) = pool_window(self.map, self.pooled, pixel);
                    let mut values = [[0.0; CHANNELS]; 4];
                    let mut best = [f32::NEG_INFINITY; CHANNELS];
                    let mut which = [0u32; CHANNELS];
                    let pixel_at = |other: usize| {
                        let exists = other % 2 < wide && other / 2 < high;
                        exists.then_some(first + other / 2 * self.map.width + other % 2)
                    };
                    for (other, z) in values.iter_mut().enumerate() {
                        let Some(at) = pixel_at(other) else { continue };
                        *z = row(at);
                        let a = affine.activated::<K::Simd>(z);
                        for c in 0..CHANNELS {
                            // The first pixel wins even if all are −∞.
                            let wins = a[c] > best[c] || a[c].is_nan() || other == 0;
                            which[c] = if wins { other as u32 } else { which[c] };
                            best[c] = if wins { a[c] } else { best[c] };
                        }
                    }
                    for (other, z) in values.iter().enumerate() {
                        let Some(at) = pixel_at(other) else { continue };
                        let u = affine.normed::<K::Simd>(z);
                        let mine =
                            channel_row(|c| if which[c] == other as u32 { dy[c] } else { 0.0 });
                        visit(group, at, image, z, &u, &mine);
                    }
                }
            }
        }
    }

    /// The sums over one block of images that the gradients of batch norm and PReLU need.
    pub fn sums<K: ConvKernel>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        live: usize,
        sums: &mut [GradientSums],
    ) {
        kernel.vectorize(
            #[inline(always)]
            || {
                // Sums of few terms in f32, which are added up in f64.
                let mut short = F32GradientSums::default();
                let mut at = (0, 0);
                self.gradients(
                    kernel,
                    z,
                    dy,
                    live,
                    #[inline(always)]
                    |group, pixel, _, z, u, dy| {
                        let here = (group, pixel / F32_SUM_PIXELS);
                        if here != at {
                            short.add_to(&mut sums[at.0]);
                            at = here;
                        }
                        let affine = &self.affine[group];
                        for c in 0..CHANNELS {
                            let positive = u[c] > 0.0;
                            let du = if positive { dy[c] } else { affine.slope[c] * dy[c] };
                            let hat = (z[c] - affine.mean[c]) * affine.inverse[c];
                            short.du[c] += du;
                            short.du_hat[c] = K::Simd::mul_add(du, hat, short.du_hat[c]);
                            short.dy_u[c] += if positive { 0.0 } else { dy[c] * u[c] };
                        }
                    },
                );
                short.add_to(&mut sums[at.0]);
            },
        );
    }

    /// The gradient of the convolution's output, with zeros for missing images.
    pub fn gradient<K: ConvKernel>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        norm: &[NormBackward],
        live: usize,
        dz: &mut [K::Word],
    ) {
        kernel.vectorize(
            #[inline(always)]
            || {
                self.gradients(
                    kernel,
                    z,
                    dy,
                    live,
                    #[inline(always)]
                    |group, pixel, image, z, u, dy| {
                        let (affine, norm) = (&self.affine[group], &norm[group]);
                        let row = channel_row(
                            #[inline(always)]
                            |c| {
                                let du = if u[c] > 0.0 { dy[c] } else { affine.slope[c] * dy[c] };
                                let offset = z[c] - affine.mean[c];
                                let rest = K::Simd::mul_add(
                                    norm.variance_factor[c],
                                    offset,
                                    norm.mean_term[c],
                                );
                                K::Simd::mul_add(affine.scale[c], du, rest)
                            },
                        );
                        let offset = self.map.offset::<K>(group, pixel, image);
                        kernel.encode(&row, &mut dz[offset..]);
                    },
                );
                zero_padding_images::<K>(dz, live);
            },
        );
    }
}

/// The larger number, or NaN if either is NaN.
#[inline(always)]
fn max_or_nan(a: f32, best: f32) -> f32 {
    if a > best || a.is_nan() { a } else { best }
}

/// Writes zeros for the missing images of a block.
#[inline(always)]
pub(super) fn zero_padding_images<K: ConvKernel>(words: &mut [K::Word], live: usize) {
    if live < IMAGES {
        for pixel in words.chunks_exact_mut(IMAGES * K::ROW_WORDS) {
            pixel[live * K::ROW_WORDS..].fill(K::Word::default());
        }
    }
}

/// Pixels whose sums are accumulated in f32.
const F32_SUM_PIXELS: usize = 16;

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
    pub fn add(&mut self, other: &Self) {
        for c in 0..CHANNELS {
            self.du[c] += other.du[c];
            self.du_hat[c] += other.du_hat[c];
            self.dy_u[c] += other.dy_u[c];
        }
    }
}

/// [`GradientSums`] of a few terms, in f32.
struct F32GradientSums {
    du: ChannelRow,
    du_hat: ChannelRow,
    dy_u: ChannelRow,
}

impl Default for F32GradientSums {
    fn default() -> Self {
        Self { du: [0.0; CHANNELS], du_hat: [0.0; CHANNELS], dy_u: [0.0; CHANNELS] }
    }
}

impl F32GradientSums {
    #[inline(always)]
    fn add_to(&mut self, sums: &mut GradientSums) {
        for c in 0..CHANNELS {
            sums.du[c] += f64::from(self.du[c]);
            sums.du_hat[c] += f64::from(self.du_hat[c]);
            sums.dy_u[c] += f64::from(self.dy_u[c]);
        }
        *self = Self::default();
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

    /// Without batch norm.
    pub const NONE: Self = Self { variance_factor: [0.0; CHANNELS], mean_term: [0.0; CHANNELS] };
}

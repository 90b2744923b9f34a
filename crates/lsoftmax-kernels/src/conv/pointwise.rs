//! Batch norm, PReLU and pooling of one block of images, between two convolutions.
//!
//! A unit keeps only what its convolution gave, z. What comes after, a = PReLU(scale · z + shift) and
//! the maximum over 2x2 pixels, is computed when it is read: by the next unit's forward pass, and
//! again by the backward passes, where the maximum is found again rather than remembered.

use super::EPSILON;
use super::layout::{CHANNELS, IMAGES, Map};
use super::stack::{Moments, Parameters};
use super::words::Activations;
use crate::kernel::Vectors;

/// Numbers of 32 channels.
pub(super) type Row = [f32; CHANNELS];

/// A number for each of 32 channels. (`std::array::from_fn` is not always inlined, and then not
/// compiled for the path's instructions.)
#[inline(always)]
pub(super) fn row_of(mut value: impl FnMut(usize) -> f32) -> Row {
    let mut row = [0.0; CHANNELS];
    for (c, number) in row.iter_mut().enumerate() {
        *number = value(c);
    }
    row
}

/// What a unit does to 32 channels of its convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    pub scale: Row,
    pub shift: Row,
    pub slope: Row,
    pub mean: Row,
    /// One over the standard deviation.
    pub inverse: Row,
}

impl Affine {
    /// One for each group of `channels` channels. Channels beyond the last give zero.
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

    /// What PReLU reads.
    #[inline(always)]
    fn normed<V: Vectors>(&self, z: &Row) -> Row {
        row_of(|c| V::mul_add(self.scale[c], z[c], self.shift[c]))
    }

    #[inline(always)]
    pub fn activated<V: Vectors>(&self, z: &Row) -> Row {
        self.prelu(&self.normed::<V>(z))
    }

    #[inline(always)]
    fn prelu(&self, u: &Row) -> Row {
        row_of(|c| if u[c] > 0.0 { u[c] } else { self.slope[c] * u[c] })
    }
}

/// A unit's way from its convolution to its output.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    /// One a group of channels.
    pub affine: &'a [Affine],
    pub pool: bool,
    /// After the convolution.
    pub map: Map,
    /// After pooling.
    pub pooled: Map,
}

/// The pixels under a pooled one: the first, and how many there are to the right and below.
#[inline(always)]
fn under(map: Map, pooled: Map, pixel: usize) -> (usize, usize, usize) {
    let (y, x) = (2 * (pixel / pooled.width), 2 * (pixel % pooled.width));
    (y * map.width + x, (map.width - x).min(2), (map.height - y).min(2))
}

impl Finish<'_> {
    /// Calls `visit(group, pixel, image, a)` for every pixel of the unit's output.
    #[inline(always)]
    pub fn outputs<K: Activations>(
        self,
        kernel: K,
        z: &[K::Word],
        live: usize,
        mut visit: impl FnMut(usize, usize, usize, &Row),
    ) {
        for (group, affine) in self.affine.iter().enumerate() {
            for pixel in 0..self.pooled.pixels() {
                for image in 0..live {
                    let row = |pixel| self.row(kernel, z, group, pixel, image);
                    if !self.pool {
                        visit(group, pixel, image, &affine.activated::<K::Vectors>(&row(pixel)));
                        continue;
                    }
                    let (first, wide, high) = under(self.map, self.pooled, pixel);
                    let mut best = affine.activated::<K::Vectors>(&row(first));
                    for other in 1..4 {
                        if other % 2 < wide && other / 2 < high {
                            let at = first + other / 2 * self.map.width + other % 2;
                            let a = affine.activated::<K::Vectors>(&row(at));
                            best = row_of(|c| larger(a[c], best[c]));
                        }
                    }
                    visit(group, pixel, image, &best);
                }
            }
        }
    }

    #[inline(always)]
    fn row<K: Activations>(
        self,
        kernel: K,
        words: &[K::Word],
        group: usize,
        pixel: usize,
        image: usize,
    ) -> Row {
        kernel.decode(&words[place::<K>(self.map, group, pixel, image)..])
    }

    /// Writes the unit's output as the next unit's input; images that are not there are zero.
    pub fn write<K: Activations>(self, kernel: K, z: &[K::Word], live: usize, out: &mut [K::Word]) {
        kernel.vectorize(
            #[inline(always)]
            || {
                self.outputs(
                    kernel,
                    z,
                    live,
                    #[inline(always)]
                    |group, pixel, image, a| {
                        let place = place::<K>(self.pooled, group, pixel, image);
                        kernel.encode(a, &mut out[place..]);
                    },
                );
                clear_dead::<K>(out, live);
            },
        );
    }

    /// Calls `visit(group, pixel of the map, image, z, u, dy)` where the output's gradient arrives: at
    /// every pixel, or at the largest of four, one channel at a time elsewhere zero.
    #[inline(always)]
    fn gradients<K: Activations>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        live: usize,
        mut visit: impl FnMut(usize, usize, usize, &Row, &Row, &Row),
    ) {
        for (group, affine) in self.affine.iter().enumerate() {
            for pixel in 0..self.pooled.pixels() {
                for image in 0..live {
                    let dy = kernel.decode(&dy[place::<K>(self.pooled, group, pixel, image)..]);
                    let row = |pixel| self.row(kernel, z, group, pixel, image);
                    if !self.pool {
                        let z = row(pixel);
                        visit(group, pixel, image, &z, &affine.normed::<K::Vectors>(&z), &dy);
                        continue;
                    }
                    let (first, wide, high) = under(self.map, self.pooled, pixel);
                    let mut values = [[0.0; CHANNELS]; 4];
                    let mut best = [f32::NEG_INFINITY; CHANNELS];
                    let mut which = [0u32; CHANNELS];
                    let places = |other: usize| {
                        let there = other % 2 < wide && other / 2 < high;
                        there.then_some(first + other / 2 * self.map.width + other % 2)
                    };
                    for (other, z) in values.iter_mut().enumerate() {
                        let Some(at) = places(other) else { continue };
                        *z = row(at);
                        let a = affine.activated::<K::Vectors>(z);
                        for c in 0..CHANNELS {
                            // The first also wins over −∞.
                            let wins = a[c] > best[c] || a[c].is_nan() || other == 0;
                            which[c] = if wins { other as u32 } else { which[c] };
                            best[c] = if wins { a[c] } else { best[c] };
                        }
                    }
                    for (other, z) in values.iter().enumerate() {
                        let Some(at) = places(other) else { continue };
                        let u = affine.normed::<K::Vectors>(z);
                        let mine = row_of(|c| if which[c] == other as u32 { dy[c] } else { 0.0 });
                        visit(group, at, image, z, &u, &mine);
                    }
                }
            }
        }
    }

    /// The sums over one block of images that the gradients of batch norm and PReLU need.
    pub fn sums<K: Activations>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        live: usize,
        sums: &mut [Sums],
    ) {
        kernel.vectorize(
            #[inline(always)]
            || {
                // Short sums in f32, long ones in f64.
                let mut short = ShortSums::default();
                let mut at = (0, 0);
                self.gradients(
                    kernel,
                    z,
                    dy,
                    live,
                    #[inline(always)]
                    |group, pixel, _, z, u, dy| {
                        let here = (group, pixel / SHORT);
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
                            short.du_hat[c] = K::Vectors::mul_add(du, hat, short.du_hat[c]);
                            short.dy_u[c] += if positive { 0.0 } else { dy[c] * u[c] };
                        }
                    },
                );
                short.add_to(&mut sums[at.0]);
            },
        );
    }

    /// The gradient of the convolution's output; images that are not there are zero.
    pub fn gradient<K: Activations>(
        self,
        kernel: K,
        z: &[K::Word],
        dy: &[K::Word],
        through: &[Through],
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
                        let (affine, through) = (&self.affine[group], &through[group]);
                        let row = row_of(
                            #[inline(always)]
                            |c| {
                                let du = if u[c] > 0.0 { dy[c] } else { affine.slope[c] * dy[c] };
                                let offset = z[c] - affine.mean[c];
                                let rest = K::Vectors::mul_add(
                                    through.by_offset[c],
                                    offset,
                                    through.all[c],
                                );
                                K::Vectors::mul_add(affine.scale[c], du, rest)
                            },
                        );
                        let place = place::<K>(self.map, group, pixel, image);
                        kernel.encode(&row, &mut dz[place..]);
                    },
                );
                clear_dead::<K>(dz, live);
            },
        );
    }
}

#[inline(always)]
fn place<K: Activations>(map: Map, group: usize, pixel: usize, image: usize) -> usize {
    ((group * map.pixels() + pixel) * IMAGES + image) * K::WORDS
}

/// The larger, or a NaN if there is one.
#[inline(always)]
fn larger(a: f32, best: f32) -> f32 {
    if a > best || a.is_nan() { a } else { best }
}

/// Zeros in place of images that are not there.
#[inline(always)]
pub(super) fn clear_dead<K: Activations>(words: &mut [K::Word], live: usize) {
    if live < IMAGES {
        for tile in words.chunks_exact_mut(IMAGES * K::WORDS) {
            tile[live * K::WORDS..].fill(K::Word::default());
        }
    }
}

/// Pixels whose sums are kept in f32.
const SHORT: usize = 16;

/// Sums over pixels and images, one a channel: Σ du, Σ du · ẑ and Σ dy · u over negative u.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    pub du: [f64; CHANNELS],
    pub du_hat: [f64; CHANNELS],
    pub dy_u: [f64; CHANNELS],
}

impl Default for Sums {
    fn default() -> Self {
        Self { du: [0.0; CHANNELS], du_hat: [0.0; CHANNELS], dy_u: [0.0; CHANNELS] }
    }
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        for c in 0..CHANNELS {
            self.du[c] += other.du[c];
            self.du_hat[c] += other.du_hat[c];
            self.dy_u[c] += other.dy_u[c];
        }
    }
}

struct ShortSums {
    du: Row,
    du_hat: Row,
    dy_u: Row,
}

impl Default for ShortSums {
    fn default() -> Self {
        Self { du: [0.0; CHANNELS], du_hat: [0.0; CHANNELS], dy_u: [0.0; CHANNELS] }
    }
}

impl ShortSums {
    #[inline(always)]
    fn add_to(&mut self, sums: &mut Sums) {
        for c in 0..CHANNELS {
            sums.du[c] += f64::from(self.du[c]);
            sums.du_hat[c] += f64::from(self.du_hat[c]);
            sums.dy_u[c] += f64::from(self.dy_u[c]);
        }
        *self = Self::default();
    }
}

/// How the gradient of 32 channels goes back through batch norm, besides `scale · du`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Through {
    by_offset: Row,
    all: Row,
}

impl Through {
    /// With batch norm: what the mean and the variance pass on. `count` values went into them.
    pub fn norm(affine: &Affine, sums: &Sums, count: usize) -> Self {
        let mut through = Self::NONE;
        for c in 0..CHANNELS {
            let (du, du_hat) = (sums.du[c] / count as f64, sums.du_hat[c] / count as f64);
            through.by_offset[c] = -affine.scale[c] * affine.inverse[c] * du_hat as f32;
            through.all[c] = -affine.scale[c] * du as f32;
        }
        through
    }

    /// Without batch norm.
    pub const NONE: Self = Self { by_offset: [0.0; CHANNELS], all: [0.0; CHANNELS] };
}

//! Residual units: the sum of a unit's output and that of an earlier one, forward and backward.
//!
//! With n the normalised convolution, f the activation and s the output that is added, the sum is v = n + s
//! and the unit's output f(v), as in ResNet; or v = f(n) + s and the output v, as in SphereFace. The first unit
//! that reads the output computes v, one row at a time, and stores it: in the backward pass, and for the units
//! that add it in turn, it would otherwise have to be computed from all sums before it.
//!
//! Backward, the gradient of v is that of s, too. It is computed from the gradient of the output and v where it
//! is read: by the unit's own backward pass, by that of a projection, and where the gradient of s is completed.

use std::ops::Range;

use super::conv_kernel::{ConvKernel, KernelLanes};
use super::epilogue::{
    Affine, AffineLanes, Epilogue, F32_SUM_PIXELS, GradientSums, LaneSums, PoolWindow, prefetch_row,
};
use super::layout::{FeatureMap, MapRows};
use crate::lanes::Lanes;

/// An output that can be computed from what is stored: a convolution, or a sum.
#[derive(Clone, Copy)]
pub(super) struct StoredOutput<'a, K: ConvKernel> {
    pub epilogue: Epilogue<'a>,
    pub words: &'a [K::Word],
}

/// A sum that is not stored yet.
#[derive(Clone, Copy)]
pub(super) struct FreshSum<'a, K: ConvKernel> {
    /// What precedes the sum, and the convolution.
    pub own: StoredOutput<'a, K>,
    /// What is added.
    pub addend: StoredOutput<'a, K>,
    /// What follows the sum.
    pub epilogue: Epilogue<'a>,
}

impl<K: ConvKernel> FreshSum<'_, K> {
    /// Computes some rows. Calls `visit(group, pixel, row, output)` for every row of words, and stores the sums of
    /// the rows `kept`.
    #[inline(always)]
    pub fn outputs(
        self,
        kernel: K,
        rows: Range<usize>,
        live: usize,
        mut kept: Option<&mut KeptRows<'_, K>>,
        mut visit: impl FnMut(usize, usize, usize, KernelLanes<K>),
    ) {
        let Self { own, addend, epilogue } = self;
        let width = epilogue.map.width;
        for group in 0..epilogue.affine.len() {
            let [before, after, added] = [own.epilogue, epilogue, addend.epilogue]
                .map(|epilogue| AffineLanes::new(kernel, &epilogue.affine[group]));
            for y in rows.clone() {
                let mut kept = kept.as_deref_mut().filter(|kept| kept.rows.contains(&y));
                for pixel in y * width..(y + 1) * width {
                    let window =
                        PoolWindow::new(addend.epilogue.map, addend.epilogue.pooled, pixel);
                    for row in 0..epilogue.map.rows(live) {
                        let z = own.epilogue.row(kernel, own.words, group, pixel, row);
                        let place = (pixel, &window);
                        let s =
                            addend.epilogue.output(kernel, &added, addend.words, group, place, row);
                        let v = before.activated(z).add(s);
                        if let Some(kept) = &mut kept {
                            let out = kept.sums.pixels_mut(group, pixel);
                            kernel.encode_lanes(v, &mut out[row * K::ROW_WORDS..]);
                        }
                        visit(group, pixel, row, after.activated(v));
                    }
                }
            }
        }
    }
}

/// The rows of a sum that a task stores.
pub(super) struct KeptRows<'a, K: ConvKernel> {
    pub rows: Range<usize>,
    pub sums: MapRows<'a, K>,
}

/// The gradient of a unit's output or, for a residual unit, of its sum.
#[derive(Clone, Copy)]
pub(super) struct Upstream<'a, K: ConvKernel> {
    /// The gradient of the output.
    pub dy: &'a [K::Word],
    pub map: FeatureMap,
    /// The activation after the sum, and the sum.
    pub sum: Option<(&'a [Affine], &'a [K::Word])>,
}

/// An [`Upstream`] of one channel group.
pub(super) struct UpstreamGroup<'a, K: ConvKernel> {
    upstream: Upstream<'a, K>,
    group: usize,
    affine: Option<AffineLanes<KernelLanes<K>>>,
}

impl<'a, K: ConvKernel> Upstream<'a, K> {
    #[inline(always)]
    pub fn group(self, kernel: K, group: usize) -> UpstreamGroup<'a, K> {
        let affine = self.sum.map(|(affine, _)| AffineLanes::new(kernel, &affine[group]));
        UpstreamGroup { upstream: self, group, affine }
    }
}

impl<K: ConvKernel> UpstreamGroup<'_, K> {
    /// The gradient of one row of words at a pixel.
    #[inline(always)]
    pub fn at(&self, kernel: K, pixel: usize, row: usize) -> KernelLanes<K> {
        let Upstream { dy, map, sum } = self.upstream;
        let at = map.offset::<K>(self.group, pixel, row);
        prefetch_row(kernel, dy, at);
        let dy = kernel.decode(&dy[at..]);
        let (Some(affine), Some((_, sums))) = (&self.affine, sum) else { return dy };
        prefetch_row(kernel, sums, at);
        let positive = kernel.decode(&sums[at..]).greater(affine.zero);
        dy.select(positive, dy.mul(affine.slope))
    }
}

/// What the sums of a unit are computed from, in addition to the gradient of its output.
#[derive(Clone, Copy)]
pub(super) struct UnitWords<'a, K: ConvKernel> {
    /// Batch norm and the activation before the sum, if there is one, and the convolution.
    pub own: StoredOutput<'a, K>,
    /// What follows the sum, and the sum.
    pub sum: Option<StoredOutput<'a, K>>,
    /// What is added, if it has no other use.
    pub projection: Option<StoredOutput<'a, K>>,
}

impl<K: ConvKernel> UnitWords<'_, K> {
    /// The number of [`GradientSums`]: one per channel group, then those of the projection.
    pub fn sums(&self) -> usize {
        let groups = self.own.epilogue.affine.len();
        groups + self.projection.map_or(0, |projection| projection.epilogue.affine.len())
    }

    /// Adds the sums over some rows of the unit's output that the gradients of batch norm and activation need.
    /// `dy(group, pixel)` are the words of a pixel of the output's gradient.
    ///
    /// With pooling, only the largest pixel of a window contributes.
    pub fn add_sums<'w>(
        &self,
        kernel: K,
        dy: impl Fn(usize, usize) -> &'w [K::Word],
        rows: Range<usize>,
        live: usize,
        sums: &mut [GradientSums],
    ) {
        let Self { own, sum, projection } = *self;
        let pooled = own.epilogue.pooled;
        let pixels = rows.start * pooled.width..rows.end * pooled.width;
        let groups = own.epilogue.affine.len();
        kernel.vectorize(
            #[inline(always)]
            || {
                for group in 0..groups {
                    let lanes_of = |stored: StoredOutput<'_, K>| {
                        AffineLanes::new(kernel, &stored.epilogue.affine[group])
                    };
                    let lanes = lanes_of(own);
                    let after = sum.map(|sum| (lanes_of(sum), sum));
                    let projection =
                        projection.map(|projection| (lanes_of(projection), projection));
                    for start in pixels.clone().step_by(F32_SUM_PIXELS) {
                        let (mut short, mut added) = (LaneSums::new(&lanes), LaneSums::new(&lanes));
                        let mut dy_v = lanes.zero;
                        for pixel in start..pixels.end.min(start + F32_SUM_PIXELS) {
                            let dy = dy(group, pixel);
                            let window = PoolWindow::new(own.epilogue.map, pooled, pixel);
                            for row in 0..pooled.rows(live) {
                                let mut dy = kernel.decode(&dy[row * K::ROW_WORDS..]);
                                if let Some((after, sum)) = &after {
                                    let v = sum.epilogue.row(kernel, sum.words, group, pixel, row);
                                    let positive = v.greater(after.zero);
                                    dy_v = dy_v.add(after.zero.select(positive, dy.mul(v)));
                                    dy = dy.select(positive, dy.mul(after.slope));
                                }
                                let place = (pixel, &window);
                                let StoredOutput { epilogue, words } = own;
                                let z = epilogue.winner(kernel, &lanes, words, group, place, row);
                                short.add(&lanes, z, dy);
                                if let Some((lanes, StoredOutput { epilogue, words })) = &projection
                                {
                                    let (map, pooled) = (epilogue.map, epilogue.pooled);
                                    let place = (pixel, &PoolWindow::new(map, pooled, pixel));
                                    let z =
                                        epilogue.winner(kernel, lanes, words, group, place, row);
                                    added.add(lanes, z, dy);
                                }
                            }
                        }
                        if after.is_some() {
                            short.dy_u = dy_v;
                        }
                        short.add_to(kernel, &own.epilogue.affine[group], &mut sums[group]);
                        if let Some((_, projection)) = &projection {
                            let affine = &projection.epilogue.affine[group];
                            added.add_to(kernel, affine, &mut sums[groups + group]);
                        }
                    }
                }
            },
        );
    }
}

//! The softmax's passes over a tile of logits: one row a class, one column a sample.
//!
//! All sums run down the columns, so sixteen samples go side by side in a vector and no pass needs
//! a horizontal step. A width is always a multiple of [`LANES`].

use crate::kernel::Vectors;

/// Columns that a pass takes at a time.
pub(crate) const LANES: usize = 16;

/// eˣ for x ≤ 88, to three units in the last place; exactly 0 below the smallest normal result.
#[inline(always)]
pub(crate) fn exp<V: Vectors>(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    // Adding and taking away 1.5 · 2^23 rounds to the nearest whole number.
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let shifted = V::mul_add(clamped, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = V::mul_add(n, -0.693_359_4, clamped);
    let r = V::mul_add(n, 2.121_944_4e-4, r);
    let p = V::mul_add(r, 1.0 / 720.0, 1.0 / 120.0);
    let p = V::mul_add(r, p, 1.0 / 24.0);
    let p = V::mul_add(r, p, 1.0 / 6.0);
    let p = V::mul_add(r, p, 0.5);
    let p = V::mul_add(r, p, 1.0);
    let p = V::mul_add(r, p, 1.0);
    // The whole number sits in the low bits of `shifted`; it goes into the exponent.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < LOWEST { 0.0 } else { scaled }
}

/// Adds a number to every element of each row.
#[inline(always)]
pub(crate) fn add_to_rows(logits: &mut [f32], width: usize, addends: &[f32]) {
    for (row, addend) in logits.chunks_exact_mut(width).zip(addends) {
        row.iter_mut().for_each(|z| *z += addend);
    }
}

/// The largest logit of every column, and the sum of eᶻ⁻ᵐᵃˣ.
#[inline(always)]
pub(crate) fn max_and_sum<V: Vectors>(
    logits: &[f32],
    width: usize,
    max: &mut [f32],
    sum: &mut [f32],
) {
    for start in (0..width).step_by(LANES) {
        let mut largest = [f32::NEG_INFINITY; LANES];
        for row in logits.chunks_exact(width) {
            for (l, z) in largest.iter_mut().zip(&row[start..start + LANES]) {
                *l = if *z > *l { *z } else { *l };
            }
        }
        let shift = largest.map(finite_or_zero);
        let mut total = [0.0f32; LANES];
        for row in logits.chunks_exact(width) {
            for ((t, z), s) in total.iter_mut().zip(&row[start..start + LANES]).zip(&shift) {
                *t += exp::<V>(*z - *s);
            }
        }
        max[start..start + LANES].copy_from_slice(&largest);
        sum[start..start + LANES].copy_from_slice(&total);
    }
}

/// Joins (max, sum) of more classes to the running (max, sum).
#[inline(always)]
pub(crate) fn merge<V: Vectors>(
    max: &mut [f32],
    sum: &mut [f32],
    other_max: &[f32],
    other_sum: &[f32],
) {
    for (((m, s), om), os) in max.iter_mut().zip(sum).zip(other_max).zip(other_sum) {
        let largest = if *om > *m { *om } else { *m };
        let shift = finite_or_zero(largest);
        *s = *s * exp::<V>(*m - shift) + *os * exp::<V>(*om - shift);
        *m = largest;
    }
}

/// `eᶻ⁻ˢʰⁱᶠᵗ · scale` for every logit: the softmax's gradient, but for the label's term.
#[inline(always)]
pub(crate) fn probabilities<V: Vectors>(
    logits: &[f32],
    width: usize,
    shift: &[f32],
    scale: &[f32],
    out: &mut [f32],
) {
    for (z, out) in logits.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        for (((o, z), shift), scale) in out.iter_mut().zip(z).zip(shift).zip(scale) {
            *o = exp::<V>(*z - *shift) * *scale;
        }
    }
}

/// The sum of each row.
#[inline(always)]
pub(crate) fn row_sums(rows: &[f32], width: usize, out: &mut [f32]) {
    for (row, out) in rows.chunks_exact(width).zip(out) {
        let mut lanes = [0.0f32; LANES];
        for chunk in row.chunks_exact(LANES) {
            lanes.iter_mut().zip(chunk).for_each(|(l, v)| *l += v);
        }
        *out = lanes.iter().sum();
    }
}

/// Σ v².
#[inline(always)]
pub(crate) fn sum_of_squares(values: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(l, v)| *l += v * v);
    }
    lanes.iter_mut().zip(rest).for_each(|(l, v)| *l += v * v);
    lanes.iter().sum()
}

/// −∞ stands for "no class yet"; subtracting it would give a NaN.
#[inline(always)]
pub(crate) fn finite_or_zero(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

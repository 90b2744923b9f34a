//! The softmax's passes over a block of logits: one row per class, one column per sample.
//!
//! All reductions run down the columns, so a vector holds sixteen samples and no pass needs a
//! horizontal operation. A width is always a multiple of [`LANES`].

use crate::kernel::Simd;

/// Columns that a pass processes at a time.
pub(crate) const LANES: usize = 16;

/// eˣ for x ≤ 88, within three units in the last place; exactly 0 where the result would be
/// subnormal.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
    // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer.
    const MAGIC: f32 = 12_582_912.0;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let shifted = S::mul_add(clamped, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = S::mul_add(n, -0.693_359_4, clamped);
    let r = S::mul_add(n, 2.121_944_4e-4, r);
    let p = S::mul_add(r, 1.0 / 720.0, 1.0 / 120.0);
    let p = S::mul_add(r, p, 1.0 / 24.0);
    let p = S::mul_add(r, p, 1.0 / 6.0);
    let p = S::mul_add(r, p, 0.5);
    let p = S::mul_add(r, p, 1.0);
    let p = S::mul_add(r, p, 1.0);
    // The low bits of `shifted` are the integer, which is added to the exponent.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    if x < LOWEST { 0.0 } else { scaled }
}

/// Adds one number per row to all elements of that row.
#[inline(always)]
pub(crate) fn add_to_rows(logits: &mut [f32], width: usize, addends: &[f32]) {
    for (row, addend) in logits.chunks_exact_mut(width).zip(addends) {
        row.iter_mut().for_each(|z| *z += addend);
    }
}

/// Multiplies all elements of each row by one number.
#[inline(always)]
pub(crate) fn scale_rows(rows: &mut [f32], width: usize, factors: &[f32]) {
    for (row, factor) in rows.chunks_exact_mut(width).zip(factors) {
        row.iter_mut().for_each(|value| *value *= factor);
    }
}

/// The largest logit of every column, and the sum of eᶻ⁻ᵐᵃˣ.
#[inline(always)]
pub(crate) fn max_and_sum<S: Simd>(logits: &[f32], width: usize, max: &mut [f32], sum: &mut [f32]) {
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
                *t += exp::<S>(*z - *s);
            }
        }
        max[start..start + LANES].copy_from_slice(&largest);
        sum[start..start + LANES].copy_from_slice(&total);
    }
}

/// Merges (max, sum) of further classes into the running (max, sum).
#[inline(always)]
pub(crate) fn merge<S: Simd>(
    max: &mut [f32],
    sum: &mut [f32],
    other_max: &[f32],
    other_sum: &[f32],
) {
    for (((m, s), om), os) in max.iter_mut().zip(sum).zip(other_max).zip(other_sum) {
        let largest = if *om > *m { *om } else { *m };
        let shift = finite_or_zero(largest);
        *s = *s * exp::<S>(*m - shift) + *os * exp::<S>(*om - shift);
        *m = largest;
    }
}

/// `eᶻ⁻ˢʰⁱᶠᵗ · scale` for every logit: the softmax's gradient without the label's term. Shift and scale are one per
/// column. If there are factors, one per row, it is multiplied by these as well.
#[inline(always)]
pub(crate) fn probabilities<S: Simd>(
    logits: &[f32],
    width: usize,
    (shift, scale): (&[f32], &[f32]),
    factors: &[f32],
    out: &mut [f32],
) {
    for (row, (z, out)) in logits.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
        let factor = factors.get(row).copied().unwrap_or(1.0);
        for (((o, z), shift), scale) in out.iter_mut().zip(z).zip(shift).zip(scale) {
            *o = exp::<S>(*z - *shift) * *scale * factor;
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

/// Replaces −∞, which stands for "no class yet", by 0: subtracting it would give a NaN.
#[inline(always)]
pub(crate) fn finite_or_zero(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

//! Conversion between f32 and bf16, whose bits are the upper half of an f32.
//!
//! The results are those of the `half` crate, which the tests check. Its branches keep the compiler from
//! vectorising as well, and these conversions run for every activation.

use crate::kernel::Bf16Pair;

/// The bits of the nearest bf16, ties to even; a NaN stays a NaN.
#[inline(always)]
fn bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = ((bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16) as u16;
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded }
}

/// Rounds to the nearest bf16.
#[inline(always)]
pub(crate) fn round(value: f32) -> f32 {
    f32::from_bits(u32::from(bits(value)) << 16)
}

/// Two adjacent elements along the depth.
#[inline(always)]
pub(crate) fn pair(first: f32, second: f32) -> Bf16Pair {
    [bits(first), bits(second)]
}

/// The numbers of a pair.
#[inline(always)]
pub(crate) fn unpair(pair: Bf16Pair) -> [f32; 2] {
    pair.map(|bits| f32::from_bits(u32::from(bits) << 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        // Every sign, exponent and upper mantissa, with lower halves around the ties and between.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, upper.wrapping_mul(40503)] {
                let value = f32::from_bits(u32::from(upper) << 16 | u32::from(lower));
                assert_eq!(bits(value), half::bf16::from_f32(value).to_bits(), "{value:e}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_and_preserves_special_values() {
        assert_eq!(round(1.0), 1.0);
        assert_eq!(round(1.0 + 1.0 / 256.0), 1.0); // halfway, down to even
        assert_eq!(round(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0); // halfway, up to even
        assert_eq!(round(1.0 + 1.1 / 256.0), 1.0 + 2.0 / 256.0);
        assert_eq!(round(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(round(f32::INFINITY), f32::INFINITY);
        assert_eq!(round(f32::MAX), f32::INFINITY);
        assert!(round(f32::NAN).is_nan());
        assert!(round(f32::from_bits(0x7f80_0001)).is_nan());
    }
}

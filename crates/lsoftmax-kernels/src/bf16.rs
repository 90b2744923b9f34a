//! bf16: the upper half of an f32.

#[cfg(target_arch = "x86_64")]
use crate::kernel::Pair;

/// The nearest bf16, ties to even; a NaN stays one.
#[inline(always)]
fn bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = ((bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16) as u16;
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded }
}

/// The value of the nearest bf16.
#[inline(always)]
pub(crate) fn round(value: f32) -> f32 {
    f32::from_bits(u32::from(bits(value)) << 16)
}

/// The value of a bf16's bits.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Two neighbours along the depth.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn pair(first: f32, second: f32) -> Pair {
    [bits(first), bits(second)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_and_keeps_what_is_special() {
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

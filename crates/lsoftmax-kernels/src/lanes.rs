//! One number for each of 32 channels, in vector registers.
//!
//! The passes of convolutions are written in terms of [`Lanes`]. Arrays of floats would do, but the
//! compiler keeps those on the stack between the steps of a pass.

/// The number of lanes: the channels of a group.
pub(crate) const LANES: usize = 32;

/// 32 floats. A value exists only where the CPU supports the instructions. All functions are
/// `#[inline(always)]`, and must be called inside of [`Simd::vectorize`](crate::kernel::Simd::vectorize)
/// to be compiled for them.
pub(crate) trait Lanes: Copy {
    /// One truth value per lane.
    type Mask: Copy;

    fn to_array(self) -> [f32; LANES];
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self · factor + addend`, fused where the path supports it.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Where `self` is greater than `other`.
    fn greater(self, other: Self) -> Self::Mask;
    /// Where `self` is greater than `other`, or NaN.
    fn greater_or_nan(self, other: Self) -> Self::Mask;
    /// `self` where the mask is set, otherwise `other`.
    fn select(self, mask: Self::Mask, other: Self) -> Self;
}

/// Defines [`Lanes`] made of several registers, given the operations on one.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes_of_registers {
    ($name:ident, $register:ty, $mask:ty, $count:literal, load: $load:expr, store: $store:expr,
     add: $add:expr, sub: $sub:expr, mul: $mul:expr, mul_add: $mul_add:expr, greater: $greater:expr,
     greater_or_nan: $greater_or_nan:expr, select: $select:expr) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub [$register; $count]);

        impl $name {
            /// # Safety
            /// The CPU supports the instructions.
            #[inline(always)]
            pub(crate) unsafe fn load(values: &[f32; $crate::lanes::LANES]) -> Self {
                let (parts, _) = values.as_chunks::<{ $crate::lanes::LANES / $count }>();
                // SAFETY: the CPU supports the instructions, and a part fills a register.
                let mut registers = unsafe { [$load(parts[0].as_ptr()); $count] };
                for (register, part) in registers.iter_mut().zip(parts) {
                    // SAFETY: as above.
                    *register = unsafe { $load(part.as_ptr()) };
                }
                Self(registers)
            }
        }

        // SAFETY of all blocks: a value exists only where the CPU supports the instructions.
        impl $crate::lanes::Lanes for $name {
            type Mask = [$mask; $count];

            #[inline(always)]
            fn to_array(self) -> [f32; $crate::lanes::LANES] {
                let mut values = [0.0; $crate::lanes::LANES];
                let (parts, _) = values.as_chunks_mut::<{ $crate::lanes::LANES / $count }>();
                for (part, register) in parts.iter_mut().zip(self.0) {
                    // SAFETY: see above; a register fills a part.
                    unsafe { $store(part.as_mut_ptr(), register) };
                }
                values
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                let mut out = self;
                for i in 0..$count {
                    // SAFETY: see above.
                    out.0[i] = unsafe { $add(self.0[i], other.0[i]) };
                }
                out
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                let mut out = self;
                for i in 0..$count {
                    // SAFETY: see above.
                    out.0[i] = unsafe { $sub(self.0[i], other.0[i]) };
                }
                out
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                let mut out = self;
                for i in 0..$count {
                    // SAFETY: see above.
                    out.0[i] = unsafe { $mul(self.0[i], other.0[i]) };
                }
                out
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                let mut out = self;
                for i in 0..$count {
                    // SAFETY: see above.
                    out.0[i] = unsafe { $mul_add(self.0[i], factor.0[i], addend.0[i]) };
                }
                out
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self::Mask {
                // SAFETY: see above.
                let mut mask = unsafe { [$greater(self.0[0], other.0[0]); $count] };
                for i in 1..$count {
                    // SAFETY: see above.
                    mask[i] = unsafe { $greater(self.0[i], other.0[i]) };
                }
                mask
            }

            #[inline(always)]
            fn greater_or_nan(self, other: Self) -> Self::Mask {
                // SAFETY: see above.
                let mut mask = unsafe { [$greater_or_nan(self.0[0], other.0[0]); $count] };
                for i in 1..$count {
                    // SAFETY: see above.
                    mask[i] = unsafe { $greater_or_nan(self.0[i], other.0[i]) };
                }
                mask
            }

            #[inline(always)]
            fn select(self, mask: Self::Mask, other: Self) -> Self {
                let mut out = self;
                for i in 0..$count {
                    // SAFETY: see above.
                    out.0[i] = unsafe { $select(mask[i], self.0[i], other.0[i]) };
                }
                out
            }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use lanes_of_registers;

/// Lanes of a path without vector instructions of its own.
#[derive(Clone, Copy)]
pub(crate) struct PlainLanes(pub [f32; LANES]);

impl PlainLanes {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self;
        for (out, other) in out.0.iter_mut().zip(other.0) {
            *out = f(*out, other);
        }
        out
    }

    #[inline(always)]
    fn compare(self, other: Self, f: impl Fn(f32, f32) -> bool) -> [bool; LANES] {
        let mut out = [false; LANES];
        for (i, out) in out.iter_mut().enumerate() {
            *out = f(self.0[i], other.0[i]);
        }
        out
    }
}

impl Lanes for PlainLanes {
    type Mask = [bool; LANES];

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        self.0
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn greater(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a > b)
    }

    #[inline(always)]
    fn greater_or_nan(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a > b || a.is_nan())
    }

    #[inline(always)]
    fn select(self, mask: Self::Mask, other: Self) -> Self {
        let mut out = self;
        for (i, out) in out.0.iter_mut().enumerate() {
            *out = if mask[i] { *out } else { other.0[i] };
        }
        out
    }
}

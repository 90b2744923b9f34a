//! From an [`Engine`](crate::Engine), known at run time, to a [`Kernel`](crate::kernel::Kernel),
//! which the compiler has to know.

/// Evaluates `$body` with `$kernel` bound to the kernel of `$engine`.
///
/// The body is compiled once for each kernel type, so it should be a call of one generic function.
macro_rules! with_kernel {
    ($engine:expr, |$kernel:ident| $body:expr) => {{
        #[cfg(target_arch = "x86_64")]
        use $crate::engine::KernelPath;
        use $crate::engine::{Engine, Precision};
        use $crate::f32_kernel::{ExactF32, F32Kernel, RoundedToBf16};
        use $crate::portable::Portable;
        #[cfg(target_arch = "x86_64")]
        use $crate::{amx::Amx, avx2::Avx2, avx512::Avx512, avx512_bf16::Avx512Bf16};
        let engine: Engine = $engine;
        match (engine.path(), engine.precision()) {
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx2, Precision::F32) => {
                // SAFETY: an Engine is only created for a path that the CPU supports.
                let $kernel = F32Kernel::<_, ExactF32>::new(unsafe { Avx2::assume() });
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx2, Precision::Bf16) => {
                // SAFETY: as above.
                let $kernel = F32Kernel::<_, RoundedToBf16>::new(unsafe { Avx2::assume() });
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx512, Precision::F32) => {
                // SAFETY: as above.
                let $kernel = F32Kernel::<_, ExactF32>::new(unsafe { Avx512::assume() });
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx512, Precision::Bf16) => {
                // SAFETY: as above.
                let $kernel = F32Kernel::<_, RoundedToBf16>::new(unsafe { Avx512::assume() });
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx512Bf16, _) => {
                // SAFETY: as above.
                let $kernel = unsafe { Avx512Bf16::assume() };
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Amx, _) => {
                // SAFETY: as above.
                let $kernel = unsafe { Amx::assume() };
                $body
            }
            // The portable path, the only one on other architectures.
            (_, Precision::F32) => {
                let $kernel = F32Kernel::<_, ExactF32>::new(Portable);
                $body
            }
            (_, Precision::Bf16) => {
                let $kernel = F32Kernel::<_, RoundedToBf16>::new(Portable);
                $body
            }
        }
    }};
}
pub(crate) use with_kernel;

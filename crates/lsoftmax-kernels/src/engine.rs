//! Which instructions to use: detected at run time, or capped by the user; and the call of the kernel that
//! has them. A new path is a variant here and a file of its own.

use std::fmt;
use std::iter::successors;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The precision of matrix products. Sums are always accumulated in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// f32 products.
    #[default]
    F32,
    /// Operands rounded to bf16 before they are multiplied.
    Bf16,
    /// The same to the bit, but the head keeps its weights in bf16 beside the f32 ones, instead of rounding
    /// them anew in every pass ([`Bf16Weights`](crate::head::Bf16Weights)).
    Bf16Weights,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::Bf16Weights => "bf16-weights",
        })
    }
}

/// An instruction set that the kernels are written for.
///
/// The paths of one architecture form a chain of [fallbacks](KernelPath::fallback) that ends in
/// [`KernelPath::Portable`]. Paths of different architectures are not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelPath {
    /// Plain Rust, on any architecture.
    Portable,
    /// aarch64: NEON, f32.
    Neon,
    /// x86-64: AVX2 with FMA, f32.
    Avx2,
    /// x86-64: AVX-512, f32.
    Avx512,
    /// x86-64: AVX-512 BF16 dot products.
    Avx512Bf16,
    /// x86-64: AMX tiles, bf16.
    Amx,
}

impl KernelPath {
    /// Every path; within one architecture, each after its fallback.
    pub const ALL: [KernelPath; 6] = [
        KernelPath::Portable,
        KernelPath::Neon,
        KernelPath::Avx2,
        KernelPath::Avx512,
        KernelPath::Avx512Bf16,
        KernelPath::Amx,
    ];

    /// The name used by [`PATH_VARIABLE`] and in reports.
    pub fn name(self) -> &'static str {
        match self {
            KernelPath::Portable => "portable",
            KernelPath::Neon => "neon",
            KernelPath::Avx2 => "avx2",
            KernelPath::Avx512 => "avx512",
            KernelPath::Avx512Bf16 => "avx512-bf16",
            KernelPath::Amx => "amx",
        }
    }

    /// The next lower path of the same architecture; none below the portable path.
    pub fn fallback(self) -> Option<KernelPath> {
        match self {
            KernelPath::Portable => None,
            KernelPath::Neon | KernelPath::Avx2 => Some(KernelPath::Portable),
            KernelPath::Avx512 => Some(KernelPath::Avx2),
            KernelPath::Avx512Bf16 => Some(KernelPath::Avx512),
            KernelPath::Amx => Some(KernelPath::Avx512Bf16),
        }
    }

    /// Whether this CPU supports the path.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            KernelPath::Portable => true,
            KernelPath::Neon => false,
            KernelPath::Avx2 => crate::avx2::Avx2::is_available(),
            KernelPath::Avx512 => crate::avx512::Avx512::is_available(),
            KernelPath::Avx512Bf16 => crate::avx512_bf16::Avx512Bf16::is_available(),
            KernelPath::Amx => crate::amx::Amx::is_available(),
        }
        #[cfg(not(target_arch = "x86_64"))]
        match self {
            KernelPath::Portable => true,
            KernelPath::Neon => cfg!(target_arch = "aarch64"),
            _ => false,
        }
    }

    /// Whether the path has products of this precision. The paths without bf16 instructions round
    /// the operands to bf16 and multiply them as f32.
    fn supports(self, precision: Precision) -> bool {
        let bf16_only = matches!(self, KernelPath::Avx512Bf16 | KernelPath::Amx);
        precision != Precision::F32 || !bf16_only
    }

    /// The best path that this CPU supports.
    fn best_available() -> Self {
        let available = Self::ALL.into_iter().rev().find(|path| path.is_available());
        available.unwrap_or(KernelPath::Portable)
    }
}

impl fmt::Display for KernelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KernelPath {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self, EngineError> {
        KernelPath::ALL
            .into_iter()
            .find(|path| path.name() == name)
            .ok_or_else(|| EngineError::UnknownPath(name.to_owned()))
    }
}

/// The environment variable that caps the kernel path: `portable`, `neon`, `avx2`, `avx512`,
/// `avx512-bf16` or `amx`.
pub const PATH_VARIABLE: &str = "LSOFTMAX_KERNEL";

/// Why an engine could not be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No path has this name.
    #[error(
        "there is no kernel path called \"{0}\": choose portable, neon, avx2, avx512, avx512-bf16 or amx"
    )]
    UnknownPath(String),
    /// The CPU lacks the instructions.
    #[error(
        "this CPU does not support the kernel path {wanted}: the best it supports is {best} (set {PATH_VARIABLE} to that or a lower path, or leave it unset)"
    )]
    Unavailable {
        /// The path asked for.
        wanted: KernelPath,
        /// The best path that the CPU supports.
        best: KernelPath,
    },
}

/// A precision and the kernel path that computes it on this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    precision: Precision,
    path: KernelPath,
}

impl Engine {
    /// The best path for `precision` that this CPU supports, capped by [`PATH_VARIABLE`].
    ///
    /// # Errors
    /// When the variable names an unknown path, or one that the CPU does not support.
    pub fn new(precision: Precision) -> Result<Self, EngineError> {
        match std::env::var_os(PATH_VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => Self::at_most(name.to_string_lossy().parse()?, precision),
            None => Self::at_most(KernelPath::best_available(), precision),
        }
    }

    /// The best path for `precision` among `ceiling` and its fallbacks.
    ///
    /// # Errors
    /// When the CPU does not support `ceiling`.
    ///
    /// ```
    /// use lsoftmax_kernels::{Engine, KernelPath, Precision};
    /// let engine = Engine::at_most(KernelPath::Portable, Precision::Bf16)?;
    /// assert_eq!(engine.path(), KernelPath::Portable);
    /// # Ok::<(), lsoftmax_kernels::EngineError>(())
    /// ```
    pub fn at_most(ceiling: KernelPath, precision: Precision) -> Result<Self, EngineError> {
        if !ceiling.is_available() {
            let best = KernelPath::best_available();
            return Err(EngineError::Unavailable { wanted: ceiling, best });
        }
        let path = successors(Some(ceiling), |path| path.fallback())
            .find(|path| path.is_available() && path.supports(precision))
            .unwrap_or(KernelPath::Portable);
        Ok(Self { precision, path })
    }

    /// An engine whose path is not checked against the CPU, for tests under an emulator.
    ///
    /// # Safety
    /// The CPU must have the path's instructions, or something must emulate them.
    #[doc(hidden)]
    pub unsafe fn assume(path: KernelPath, precision: Precision) -> Self {
        assert!(path.supports(precision), "{path} has no {precision} products");
        Self { precision, path }
    }

    /// The precision of products.
    pub fn precision(self) -> Precision {
        self.precision
    }

    /// The kernel path in use.
    pub fn path(self) -> KernelPath {
        self.path
    }
}

// From an engine, known at run time, to a kernel type, which the compiler has to know.

/// Evaluates `$body` with `$kernel` bound to the kernel of `$engine`.
///
/// The body is compiled once for each kernel type, so it should be a call of one generic function.
macro_rules! with_kernel {
    ($engine:expr, |$kernel:ident| $body:expr) => {{
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        use $crate::engine::KernelPath;
        use $crate::engine::{Engine, Precision};
        use $crate::f32_kernel::{ExactF32, F32Kernel, RoundedToBf16};
        use $crate::portable::Portable;
        #[cfg(target_arch = "x86_64")]
        use $crate::{amx::Amx, avx2::Avx2, avx512::Avx512, avx512_bf16::Avx512Bf16};
        let engine: Engine = $engine;
        match (engine.path(), engine.precision()) {
            #[cfg(target_arch = "aarch64")]
            (KernelPath::Neon, Precision::F32) => {
                let $kernel = F32Kernel::<_, ExactF32>::new($crate::neon::Neon);
                $body
            }
            #[cfg(target_arch = "aarch64")]
            (KernelPath::Neon, _) => {
                let $kernel = F32Kernel::<_, RoundedToBf16>::new($crate::neon::Neon);
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx2, Precision::F32) => {
                // SAFETY: an Engine is only created for a path that the CPU supports.
                let $kernel = F32Kernel::<_, ExactF32>::new(unsafe { Avx2::assume() });
                $body
            }
            #[cfg(target_arch = "x86_64")]
            (KernelPath::Avx2, _) => {
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
            (KernelPath::Avx512, _) => {
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
            // The portable path.
            (_, Precision::F32) => {
                let $kernel = F32Kernel::<_, ExactF32>::new(Portable);
                $body
            }
            (_, _) => {
                let $kernel = F32Kernel::<_, RoundedToBf16>::new(Portable);
                $body
            }
        }
    }};
}
pub(crate) use with_kernel;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallbacks_end_in_the_portable_path_and_precede_their_path_in_the_list() {
        let position = |path| KernelPath::ALL.iter().position(|other| *other == path);
        for path in KernelPath::ALL {
            assert_eq!(path.name().parse(), Ok(path));
            let chain: Vec<_> = successors(Some(path), |path| path.fallback()).collect();
            assert_eq!(chain.last(), Some(&KernelPath::Portable));
            assert!(chain.is_sorted_by(|higher, lower| position(*higher) > position(*lower)));
        }
    }
}

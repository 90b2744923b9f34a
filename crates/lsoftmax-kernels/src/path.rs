//! Which instructions to use: found at run time, or capped by the user.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The precision of matrix products. Sums are f32 in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 products.
    #[default]
    F32,
    /// Operands rounded to bf16 before they are multiplied.
    Bf16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        })
    }
}

/// A rung of instructions, from what every CPU has to what few have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// Plain Rust.
    Portable,
    /// AVX2 with FMA, f32.
    Avx2,
    /// AVX-512, f32.
    Avx512,
    /// AVX-512 BF16 dot products.
    Avx512Bf16,
    /// AMX tiles, bf16.
    Amx,
}

impl Path {
    /// Every path, lowest first.
    pub const ALL: [Path; 5] =
        [Path::Portable, Path::Avx2, Path::Avx512, Path::Avx512Bf16, Path::Amx];

    /// The name used by [`PATH_VARIABLE`] and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Path::Portable => "portable",
            Path::Avx2 => "avx2",
            Path::Avx512 => "avx512",
            Path::Avx512Bf16 => "avx512-bf16",
            Path::Amx => "amx",
        }
    }

    /// Whether this CPU can take the path.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Path::Portable => true,
            Path::Avx2 => crate::avx2::Avx2::is_available(),
            Path::Avx512 => crate::avx512::Avx512::is_available(),
            Path::Avx512Bf16 => crate::avx512_bf16::Avx512Bf16::is_available(),
            Path::Amx => crate::amx::Amx::is_available(),
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Path::Portable
        }
    }

    /// Whether the path computes products of this precision by instructions of its own.
    fn serves(self, precision: Precision) -> bool {
        precision == Precision::Bf16 || self <= Path::Avx512
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Path {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self, EngineError> {
        Path::ALL
            .into_iter()
            .find(|path| path.name() == name)
            .ok_or_else(|| EngineError::UnknownPath(name.to_owned()))
    }
}

/// The environment variable that caps the path: `portable`, `avx2`, `avx512`, `avx512-bf16`, `amx`.
pub const PATH_VARIABLE: &str = "LSOFTMAX_KERNEL";

/// Why an engine could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The name is not a path's.
    #[error(
        "there is no kernel path called \"{0}\": choose portable, avx2, avx512, avx512-bf16 or amx"
    )]
    UnknownPath(String),
    /// The CPU lacks the instructions.
    #[error(
        "this CPU cannot take the kernel path {wanted}: its best is {best} (set {PATH_VARIABLE} to that or lower, or leave it unset)"
    )]
    Unavailable {
        /// What was asked for.
        wanted: Path,
        /// The best that there is.
        best: Path,
    },
}

/// A precision and the path that serves it on this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    precision: Precision,
    path: Path,
}

impl Engine {
    /// The best path for `precision` that this CPU has, no higher than [`PATH_VARIABLE`] says.
    ///
    /// # Errors
    /// When the variable names no path, or one that the CPU lacks.
    pub fn new(precision: Precision) -> Result<Self, EngineError> {
        match std::env::var_os(PATH_VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => Self::at_most(name.to_string_lossy().parse()?, precision),
            None => Self::at_most(best(), precision),
        }
    }

    /// The best path for `precision` up to `ceiling`.
    ///
    /// # Errors
    /// When the CPU lacks `ceiling`.
    ///
    /// ```
    /// use lsoftmax_kernels::{Engine, Path, Precision};
    /// let engine = Engine::at_most(Path::Portable, Precision::Bf16)?;
    /// assert_eq!(engine.path(), Path::Portable);
    /// # Ok::<(), lsoftmax_kernels::EngineError>(())
    /// ```
    pub fn at_most(ceiling: Path, precision: Precision) -> Result<Self, EngineError> {
        if !ceiling.is_available() {
            return Err(EngineError::Unavailable { wanted: ceiling, best: best() });
        }
        let path = Path::ALL
            .into_iter()
            .rev()
            .find(|path| *path <= ceiling && path.is_available() && path.serves(precision))
            .unwrap_or(Path::Portable);
        Ok(Self { precision, path })
    }

    /// An engine without asking the CPU, for tests under an emulator.
    ///
    /// # Safety
    /// The CPU must have the path's instructions, or something must emulate them.
    #[doc(hidden)]
    pub unsafe fn assume(path: Path, precision: Precision) -> Self {
        assert!(path.serves(precision), "{path} has no {precision} products");
        Self { precision, path }
    }

    /// The precision of products.
    pub fn precision(self) -> Precision {
        self.precision
    }

    /// The path taken.
    pub fn path(self) -> Path {
        self.path
    }
}

fn best() -> Path {
    Path::ALL.into_iter().rev().find(|path| path.is_available()).unwrap_or(Path::Portable)
}

/// Calls `$run(kernel, …)` with the kernel of `$engine`.
macro_rules! with_kernel {
    ($engine:expr, $run:ident ( $($argument:expr),* $(,)? )) => {{
        use $crate::f32_words::{Exact, F32, Rounded};
        use $crate::path::{Path, Precision};
        use $crate::portable::Portable;
        let engine: $crate::path::Engine = $engine;
        macro_rules! run {
            ($kernel:expr) => { $run($kernel, $($argument),*) };
        }
        macro_rules! f32_words {
            ($vectors:expr) => {
                match engine.precision() {
                    Precision::F32 => run!(F32::<_, Exact>::new($vectors)),
                    Precision::Bf16 => run!(F32::<_, Rounded>::new($vectors)),
                }
            };
        }
        #[cfg(target_arch = "x86_64")]
        macro_rules! assume {
            ($kernel:ty) => {{
                // SAFETY: an Engine is only made for a path that the CPU has.
                unsafe { <$kernel>::assume() }
            }};
        }
        match engine.path() {
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => f32_words!(assume!($crate::avx2::Avx2)),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => f32_words!(assume!($crate::avx512::Avx512)),
            #[cfg(target_arch = "x86_64")]
            Path::Avx512Bf16 => run!(assume!($crate::avx512_bf16::Avx512Bf16)),
            #[cfg(target_arch = "x86_64")]
            Path::Amx => run!(assume!($crate::amx::Amx)),
            // What is left: the portable path, the only one of other architectures.
            _ => f32_words!(Portable),
        }
    }};
}
pub(crate) use with_kernel;

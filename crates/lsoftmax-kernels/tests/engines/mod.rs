//! The engines to test on this machine.

use lsoftmax_kernels::{Engine, KernelPath, Precision};

/// Every engine that this CPU supports, and emulated AMX if it lacks only that; without those that differ only in
/// what the head keeps.
#[allow(dead_code, reason = "the tests of the head use the other one")]
pub fn engines() -> Vec<Engine> {
    engines_of(&[Precision::F32, Precision::Bf16])
}

/// The same of some precisions.
pub fn engines_of(precisions: &[Precision]) -> Vec<Engine> {
    let mut engines = Vec::new();
    for precision in precisions.iter().copied() {
        for path in KernelPath::ALL.into_iter().filter(|path| path.is_available()) {
            let engine = Engine::at_most(path, precision).unwrap();
            if engine.path() == path {
                engines.push(engine);
            }
        }
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if !KernelPath::Amx.is_available() && KernelPath::Avx512Bf16.is_available() {
        crate::amx_emulator::install();
        for precision in precisions.iter().filter(|precision| **precision != Precision::F32) {
            // SAFETY: the emulator is installed, and the CPU supports AVX-512 BF16.
            engines.push(unsafe { Engine::assume(KernelPath::Amx, *precision) });
        }
    }
    engines
}

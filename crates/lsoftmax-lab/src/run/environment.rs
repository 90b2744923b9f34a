//! The machine and program version of a run.

use lsoftmax::Precision;
use lsoftmax_kernels::Engine;
use serde::{Deserialize, Serialize};

/// A machine and program version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The CPU's name.
    pub cpu: String,
    /// Its architecture.
    pub architecture: String,
    /// The operating system.
    pub system: String,
    /// The kernel path.
    pub path: String,
    /// The number of threads.
    pub threads: usize,
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
}

impl Environment {
    /// The current machine and program, with the kernel path of a precision.
    pub fn current(precision: Precision) -> Self {
        Self {
            cpu: cpu(),
            architecture: std::env::consts::ARCH.into(),
            system: std::env::consts::OS.into(),
            path: Engine::new(precision).map_or("none", |engine| engine.path().name()).into(),
            threads: rayon::current_num_threads(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("LSOFTMAX_COMMIT").into(),
        }
    }
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| "unknown".into())
}

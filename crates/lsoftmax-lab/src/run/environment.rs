//! The machine and program version of a run.

use serde::{Deserialize, Serialize};

use crate::compute::Compute;

/// A machine and program version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The CPU's name.
    pub cpu: String,
    /// Its architecture.
    pub architecture: String,
    /// The operating system.
    pub system: String,
    /// The device.
    #[serde(default = "cpu_device")]
    pub device: String,
    /// The kernel path; `burn` for Burn's own operations.
    pub path: String,
    /// The number of threads, of each rank if there are several.
    pub threads: usize,
    /// The number of ranks that train together.
    #[serde(default = "one_rank", skip_serializing_if = "is_one_rank")]
    pub ranks: usize,
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
}

impl Environment {
    /// The current machine and program, and what computes.
    pub fn current(compute: &Compute) -> Self {
        Self {
            cpu: cpu(),
            architecture: std::env::consts::ARCH.into(),
            system: std::env::consts::OS.into(),
            device: compute.device_name(),
            path: compute.path().into(),
            threads: rayon::current_num_threads(),
            ranks: compute.ranks.size(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("LSOFTMAX_COMMIT").into(),
        }
    }
}

/// The device of runs that were recorded before there was a choice.
fn cpu_device() -> String {
    "cpu".into()
}

fn one_rank() -> usize {
    1
}

fn is_one_rank(ranks: &usize) -> bool {
    *ranks == 1
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| "unknown".into())
}

//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Code, Failure};

#[cfg(unix)]
const SIGNALS: [i32; 4] =
    [SIGINT, SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGUSR1];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// A flag that SIGINT, SIGTERM, SIGHUP or SIGUSR1 sets; a second signal ends the program at once. SIGUSR1 is what mpirun
/// passes on to all ranks without ending them, and what a scheduler can send before the time is up. A signal that
/// the program was started to ignore, as `nohup` and background jobs are, stays ignored.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    for signal in SIGNALS.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
        flag::register_conditional_shutdown(signal, Code::Interrupted as i32, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::failed(format!("signals cannot be caught ({error})")))?;
    }
    Ok(stop)
}

/// The signals that this process ignores, bit n − 1 for signal n. Only Linux says so without unsafe code;
/// elsewhere none are.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

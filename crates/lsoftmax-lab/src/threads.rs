//! The global thread pool.

use std::env::{self, VarError};

/// The environment variable with the number of threads.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The largest number of threads: far above the cores of any machine, and few enough to be started.
pub(crate) const MOST: usize = 1024;

/// Why the thread pool could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The environment variable is not a number of threads.
    #[error("{VARIABLE} must be a number of threads from 1 to {MOST}, but is \"{0}\"")]
    Number(String),
    /// The system refused to start them.
    #[error("the threads could not be started ({0}); set {VARIABLE} to a smaller number")]
    Start(String),
}

/// Starts rayon's global thread pool, with as many threads as `RAYON_NUM_THREADS` says, else one per
/// core. A failure is an error here rather than a panic at first use.
///
/// # Errors
/// When the variable is not a number from 1 to 1024, or the threads cannot be started.
pub fn start() -> Result<(), ThreadsError> {
    start_beside(1)
}

/// As [`start`] for one of several processes that share the cores of this machine.
///
/// # Errors
/// See [`start`].
pub fn start_beside(processes: usize) -> Result<(), ThreadsError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (processes > 1).then(|| (cores / processes).max(1));
    let threads = match env::var(VARIABLE) {
        Err(VarError::NotPresent) => None,
        // As rayon has it, no text and 0 mean one per core.
        Ok(text) if ["", "0"].contains(&text.trim()) => None,
        Ok(text) => Some(number(&text)?),
        Err(VarError::NotUnicode(text)) => Some(number(&text.to_string_lossy())?),
    };
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.or(share).unwrap_or(0));
    builder.build_global().map_err(|error| ThreadsError::Start(error.to_string()))
}

fn number(text: &str) -> Result<usize, ThreadsError> {
    let number = text.trim().parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| ThreadsError::Number(text.to_owned()))
}

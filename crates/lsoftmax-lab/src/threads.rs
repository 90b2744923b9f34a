//! The threads that all commands share.

/// Why there are none.
#[derive(Debug, thiserror::Error)]
#[error("the threads could not be started ({0}); set RAYON_NUM_THREADS to fewer")]
pub struct ThreadsError(String);

/// Starts the threads now: left to their first use, a failure to start them would be a panic.
///
/// # Errors
/// When the system refuses.
pub fn start() -> Result<(), ThreadsError> {
    let started = rayon::ThreadPoolBuilder::new().build_global();
    started.map_err(|error| ThreadsError(error.to_string()))
}

//! The global thread pool.

/// Why the thread pool could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the threads could not be started ({0}); set RAYON_NUM_THREADS to a smaller number")]
pub struct ThreadsError(String);

/// Starts rayon's global thread pool, so that a failure is an error rather than a panic at first use.
///
/// # Errors
/// When the threads cannot be started.
pub fn start() -> Result<(), ThreadsError> {
    let started = rayon::ThreadPoolBuilder::new().build_global();
    started.map_err(|error| ThreadsError(error.to_string()))
}

//! Training inside a test.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lsoftmax_data::DataDir;
use lsoftmax_lab::train::Options;

/// Initial weights come from Burn's random numbers, one generator per process: tests take turns.
pub fn take_turns() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With an empty directory of data sets: MNIST is built in.
pub fn options(directory: &Path) -> Options {
    Options::new(DataDir::find(Some(directory.join("data"))).unwrap())
}

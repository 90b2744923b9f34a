//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Code, Failure};

/// A flag that SIGINT or SIGTERM sets; a second signal ends the program at once.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(Code::Interrupted as i32);
        }
    };
    ctrlc::set_handler(handler)
        .map_err(|error| Failure::failed(format!("signals cannot be caught ({error})")))?;
    Ok(stop)
}

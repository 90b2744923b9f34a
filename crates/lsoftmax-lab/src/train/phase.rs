//! The parts of a run between its training steps that may take minutes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Event;
use super::journal::Observer;

/// A part of a run between its training steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The images of a folder are read.
    Reading,
    /// The held-out images are evaluated.
    Validation,
    /// The test images are evaluated.
    Test,
}

impl Phase {
    /// Reports `done` of `total` images, and breaks if the run is to stop.
    pub(super) fn report(
        self,
        (done, total): (usize, usize),
        stop: &AtomicBool,
        observe: &mut Observer<'_>,
    ) -> ControlFlow<()> {
        observe(Event::Progress { phase: self, done, total });
        if stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

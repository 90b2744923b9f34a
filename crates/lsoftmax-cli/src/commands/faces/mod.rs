//! `lsoftmax faces`.

mod align;
mod list;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use clap::{Args, Subcommand};
use lsoftmax_faces::FacesError;

use crate::failure::Failure;
use crate::progress::ImageProgress;
use crate::signals::stop_flag;

/// Prepare faces: align photographs by landmarks, list them for training
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct FacesCommand {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Align(align::AlignCommand),
    List(list::ListCommand),
}

impl FacesCommand {
    pub fn run(self) -> Result<String, Failure> {
        match self.task {
            Task::Align(command) => command.run(),
            Task::List(command) => command.run(),
        }
    }
}

/// Works on images with a progress bar, until a signal stops it.
fn watched<T>(
    what: &'static str,
    work: impl FnOnce(&mut dyn FnMut(usize, usize) -> ControlFlow<()>) -> Result<T, FacesError>,
) -> Result<T, Failure> {
    let (stop, progress) = (stop_flag()?, ImageProgress::new(what));
    let result = work(&mut |done, total| {
        progress.show(done, total);
        if stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    match result {
        Err(error @ FacesError::Interrupted { .. }) => Err(Failure::interrupted(error.to_string())),
        result => Ok(result?),
    }
}

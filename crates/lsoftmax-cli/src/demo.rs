//! `lsoftmax` without a command.

use std::path::Path;

use lsoftmax_lab::data::DataDir;
use lsoftmax_lab::demo;
use lsoftmax_lab::train::Options;

use crate::train::{Progress, stop_on_signals};

/// Where the demonstration is kept.
const OUT: &str = "lsoftmax-demo";

/// The demonstration was stopped from outside.
#[derive(Debug, thiserror::Error)]
#[error("stopped; what was done is kept in {OUT}, and `lsoftmax` goes on")]
pub struct Interrupted;

pub fn run() -> anyhow::Result<String> {
    let options = Options {
        data: DataDir::find(None)?,
        on_divergence: None,
        loader_threads: 1,
        tensorboard: false,
        stop: stop_on_signals()?,
    };
    let minutes = demo::seconds()? / 60.0;
    crate::tell(&format!(
        "Training the paper's 2-D network on MNIST with m = 1, 2, 3, 4: about {} on this machine.",
        if minutes < 1.5 { "a minute".to_owned() } else { format!("{minutes:.0} minutes") }
    ));
    let mut progress = Progress::new();
    let done = demo::run(Path::new(OUT), &options, &mut |margin, event| {
        progress.show(&format!("m = {margin}: "), event);
    });
    progress.finish();
    Ok(done?.ok_or(Interrupted)?.to_string())
}

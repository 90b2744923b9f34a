//! `lsoftmax` without a command.

use std::path::Path;

use lsoftmax_data::DataDir;
use lsoftmax_lab::demo;
use lsoftmax_lab::train::Options;

use crate::failure::Failure;
use crate::output::tell;
use crate::progress::TrainingProgress;
use crate::signals::stop_flag;

/// The directory of the demonstration.
const OUT: &str = "lsoftmax-demo";

pub fn run() -> Result<String, Failure> {
    let options = Options { stop: stop_flag()?, ..Options::new(DataDir::find(None)?) };
    let minutes = demo::duration(Path::new(OUT))?.as_secs_f64() / 60.0;
    tell(&format!(
        "Training the paper's 2-D network on MNIST with m = 1, 2, 3, 4: about {} on this machine.",
        if minutes < 1.5 { "a minute".to_owned() } else { format!("{minutes:.0} minutes") }
    ));
    let mut progress = TrainingProgress::new();
    let finished = demo::run(Path::new(OUT), &options, &mut |margin, event| {
        progress.show(&format!("m = {margin}: "), event);
    });
    progress.finish();
    let stopped =
        || Failure::interrupted(format!("stopped; {OUT} is kept: resume with `lsoftmax`"));
    Ok(finished?.ok_or_else(stopped)?.to_string())
}

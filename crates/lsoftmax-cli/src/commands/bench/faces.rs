//! `lsoftmax bench faces`.

use clap::Args;
use lsoftmax_lab::bench::{FacesBench, FacesTiming};
use lsoftmax_lab::threads;

use super::threads_text;
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::size;

const EXAMPLES: &str = "\
Examples:
  lsoftmax bench faces
  lsoftmax bench faces --gallery 1000000                a gallery of 2 GB

RAYON_NUM_THREADS sets the number of threads.";

/// Measure alignment, verification and identification, on drawn images and random embeddings
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct FacesBenchCommand {
    /// Photographs to align
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = size)]
    images: usize,
    /// Pairs to verify
    #[arg(long, value_name = "N", default_value_t = 6000, value_parser = size)]
    pairs: usize,
    /// Faces in the gallery
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = size)]
    gallery: usize,
    /// Features of a face
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = size)]
    features: usize,
    #[command(flatten)]
    output: OutputArguments,
}

impl FacesBenchCommand {
    pub fn run(self) -> Result<String, Failure> {
        threads::start()?;
        let Self { images, pairs, gallery, features, .. } = self;
        let sizes = [("--images", images), ("--gallery", gallery), ("--features", features)];
        if let Some((argument, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(Failure::bad_input(format!("{argument}: must be at least 1")));
        }
        if pairs < 20 {
            return Err(Failure::bad_input("--pairs: must be at least 20, for ten folds"));
        }
        let bench = FacesBench { images, pairs, gallery, features };
        self.output.render(&bench.run()?, text)
    }
}

fn text(timing: &FacesTiming) -> String {
    let verify: Vec<String> = timing
        .verify_seconds
        .iter()
        .map(|(name, seconds)| format!("{name} {seconds:.2} s"))
        .collect();
    format!(
        "aligning {:.0} images/s ({} of 96 x 96 pixels, JPEG to PNG), {}\n\
         verifying {} pairs of {} features: {}\n\
         identifying one face among {}: {:.1} ms, one of 64 at once: {:.1} ms",
        timing.aligned_per_second,
        timing.images,
        threads_text(timing.threads),
        timing.pairs,
        timing.features,
        verify.join(", "),
        timing.gallery,
        1e3 * timing.identify_seconds,
        1e3 * timing.identify_seconds_of_many
    )
}

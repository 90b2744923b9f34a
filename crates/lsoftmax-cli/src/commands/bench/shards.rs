//! `lsoftmax bench shards`.

use std::sync::Arc;

use clap::Args;
use lsoftmax::Precision;
use lsoftmax_lab::bench::{ShardBench, ShardTiming};
use lsoftmax_lab::threads;
use lsoftmax_mpi::{Session, launch};

use super::{MeasuredHead, threads_text};
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::{EXIT_CODES, KERNELS};
use crate::value_parsers::precision;

const EXAMPLES: &str = "\
Examples:
  lsoftmax bench shards                                 a million classes, one process
  mpirun --bind-to none -n 4 lsoftmax bench shards      the same, divided over four ranks
  mpirun --bind-to none -n 4 lsoftmax bench shards --classes 10000000 --json";

/// Measure training steps of a head whose classes are divided over ranks, and what each rank holds
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
pub struct ShardBenchCommand {
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    samples: usize,
    /// Features per sample
    #[arg(long, value_name = "D", default_value_t = 128)]
    features: usize,
    /// Classes
    #[arg(long, value_name = "K", default_value_t = 1_000_000)]
    classes: usize,
    #[command(flatten)]
    head: MeasuredHead,
    /// The precision of products; sums and weights are always f32
    #[arg(long, default_value = "bf16", value_parser = precision())]
    precision: Precision,
    /// Measure this many steps
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    steps: usize,
    #[command(flatten)]
    output: OutputArguments,
}

impl ShardBenchCommand {
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        threads::start_beside(launch().local)?;
        let bench = ShardBench {
            samples: self.samples,
            features: self.features,
            classes: self.classes,
            head: self.head.settings()?,
            lambda: self.head.lambda,
            precision: self.precision,
            steps: self.steps,
            ranks: Arc::clone(session.comm()),
        };
        self.output.render(&bench.run()?, text)
    }
}

fn text(timing: &ShardTiming) -> String {
    let ShardTiming { samples, features, classes, shards, precision, path, .. } = timing;
    let ranks = if timing.ranks == 1 { "1 rank".into() } else { format!("{} ranks", timing.ranks) };
    let mut text = format!(
        "{samples} samples, {classes} classes of {features} features in {shards} shards: {precision} on {path}, {ranks} of {}\n\
         a step takes {:.1} ms (median of {}), of which {:.1} ms are communication: {} exchanges, {:.2} MB sent by each rank",
        threads_text(timing.threads),
        timing.milliseconds,
        timing.steps,
        1e3 * timing.communication_seconds,
        timing.exchanges_per_step,
        timing.bytes_per_step as f64 / 1e6,
    );
    for (rank, holds) in timing.holds.iter().enumerate() {
        text += &format!(
            "\nrank {rank}: {} classes, {:.0} MB of weights and as much momentum; {:.0} MB of memory at most",
            holds.classes,
            holds.weight_bytes as f64 / 1e6,
            holds.peak_resident_bytes as f64 / 1e6,
        );
    }
    text
}

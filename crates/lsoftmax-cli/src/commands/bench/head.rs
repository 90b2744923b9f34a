//! `lsoftmax bench head`.

use std::time::Duration;

use clap::Args;
use lsoftmax::{Precision, SampleRate};
use lsoftmax_lab::bench::{HeadBench, HeadTiming, Length};

use super::{HEAP, MeasuredHead, ThreadsArgument, threads_text};
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::{EXIT_CODES, KERNELS};
use crate::value_parsers::{precision, seconds};

const EXAMPLES: &str = "\
Examples:
  lsoftmax bench head                                   256 x 512 features, 10,572 classes
  lsoftmax bench head --classes 1000000 --features 128 --precision bf16
  lsoftmax bench head --threads 1 --steps 20 --json";

/// Measure the head through Burn: forward and backward, with gradients of features and weights
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
pub struct HeadBenchCommand {
    /// Samples per batch
    #[arg(long, value_name = "N", default_value_t = 256)]
    samples: usize,
    /// Features per sample
    #[arg(long, value_name = "D", default_value_t = 512)]
    features: usize,
    /// Classes
    #[arg(long, value_name = "K", default_value_t = 10_572)]
    classes: usize,
    #[command(flatten)]
    head: MeasuredHead,
    /// The precision of matrix products; both accumulate in f32
    #[arg(long, default_value = "f32", value_parser = precision())]
    precision: Precision,
    /// Give the head a bias
    #[arg(long)]
    bias: bool,
    /// Measure this many steps
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds")]
    steps: Option<usize>,
    /// Measure for this many seconds, and at least three steps
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Duration,
    #[command(flatten)]
    threads: ThreadsArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl HeadBenchCommand {
    pub fn run(self) -> Result<String, Failure> {
        let bench = HeadBench {
            samples: self.samples,
            features: self.features,
            classes: self.classes,
            head: self.head.settings()?,
            lambda: self.head.lambda,
            precision: self.precision,
            bias: self.bias,
            length: self.steps.map_or(Length::Time(self.seconds), Length::Steps),
            threads: self.threads.start()?,
        };
        self.output.render(&bench.run(&HEAP)?, text)
    }
}

fn text(timing: &HeadTiming) -> String {
    let HeadTiming { head, samples, features, classes, lambda, precision, kernel, .. } = timing;
    let margin = timing.margin.value();
    let bias = if timing.bias { ", bias" } else { "" };
    let sampled = match timing.sample_rate {
        rate if rate == SampleRate::ALL => String::new(),
        rate => format!(", {} of the classes", rate.value()),
    };
    format!(
        "{head} {samples} x {features} -> {classes}: m = {margin}, λ = {lambda}{bias}{sampled}, \
         {precision} on {kernel}, {}\n\
         {:.3} ms forward and backward (median of {} steps, fastest {:.3}), {:.0} Gflop/s, \
         {:.1} MB beside x, W and their gradients",
        threads_text(timing.threads),
        timing.milliseconds,
        timing.steps,
        timing.fastest_milliseconds,
        timing.gflops,
        timing.peak_bytes as f64 / 1e6,
    )
}

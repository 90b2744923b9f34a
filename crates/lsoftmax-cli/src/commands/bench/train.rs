//! `lsoftmax bench train`.

use clap::Args;
use lsoftmax::Precision;
use lsoftmax_lab::bench::{TrainBench, TrainTiming};
use lsoftmax_nn::NamedNetwork;

use super::{HEAP, ThreadsArgument, threads_text};
use crate::argument_groups::{HeadArguments, OutputArguments};
use crate::failure::Failure;
use crate::help::{EXIT_CODES, KERNELS};
use crate::value_parsers::{image_size, precision};

const EXAMPLES: &str = "\
Examples:
  lsoftmax bench train                                  cifar10, batches of 256, bf16
  lsoftmax bench train --network mnist --precision f32
  lsoftmax bench train --network lfw --batch 64 --steps 3 --json";

/// Measure training steps of a network of the paper with its head and SGD, then inference, on random
/// images
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
pub struct TrainBenchCommand {
    /// mnist-2d, mnist, cifar10, cifar100, lfw, resnet20 or sphereface20
    #[arg(long, value_name = "NAME", default_value = "cifar10")]
    network: String,
    /// The size of the images instead of the network's own, width x height
    #[arg(long, value_name = "WxH", value_parser = image_size)]
    image_size: Option<(u32, u32)>,
    /// Images per batch
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,
    /// Classes [default: those of the network's data set; lfw: 10,572]
    #[arg(long, value_name = "K")]
    classes: Option<usize>,
    #[command(flatten)]
    head: HeadArguments,
    /// The precision of products; sums, weights and statistics are always f32
    #[arg(long, default_value = "bf16", value_parser = precision())]
    precision: Precision,
    /// Use Burn's own operations instead of the kernels, in f32, for comparison
    #[arg(long, conflicts_with = "precision")]
    composed: bool,
    /// Measure this many steps
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    steps: usize,
    #[command(flatten)]
    threads: ThreadsArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl TrainBenchCommand {
    pub fn run(self) -> Result<String, Failure> {
        let network = NamedNetwork::named(&self.network)?;
        let classes = self.classes.unwrap_or(network.classes);
        let mut config = network.config();
        if let Some((width, height)) = self.image_size {
            config.input = [config.input[0], height as usize, width as usize];
        }
        let bench = TrainBench {
            name: self.network,
            network: config,
            classes,
            batch: self.batch,
            head: self.head.settings()?,
            precision: if self.composed { Precision::F32 } else { self.precision },
            composed: self.composed,
            steps: self.steps,
            threads: self.threads.start()?,
        };
        self.output.render(&bench.run(&HEAP)?, text)
    }
}

fn text(timing: &TrainTiming) -> String {
    let TrainTiming { network, batch, classes, head, precision, path, .. } = timing;
    let margin = timing.margin.value();
    format!(
        "{network}, batches of {batch}, {classes} classes: {head}, m = {margin}, {precision} on {path}, {}\n\
         training {:.1} images/s (median of {} steps), {:.0} Gflop/s, {:.0} % of the peak of {:.0}; \
         inference {:.1} images/s; {:.0} MB at most\n\
         the loader prepares {:.0} images/s on one thread",
        threads_text(timing.threads),
        timing.images_per_second,
        timing.steps,
        timing.gflops,
        100.0 * timing.gflops / timing.peak_gflops,
        timing.peak_gflops,
        timing.inference_images_per_second,
        timing.peak_bytes as f64 / 1e6,
        timing.loader_images_per_second,
    )
}

//! `lsoftmax bench scale`.

use std::sync::Arc;

use clap::Args;
use lsoftmax::Precision;
use lsoftmax_lab::bench::{ScaleBench, ScaleTiming};
use lsoftmax_lab::threads;
use lsoftmax_mpi::{Session, launch};
use lsoftmax_nn::NamedNetwork;

use super::threads_text;
use crate::argument_groups::{HeadArguments, OutputArguments};
use crate::failure::Failure;
use crate::help::{EXIT_CODES, KERNELS};
use crate::value_parsers::precision;

const EXAMPLES: &str = "\
Examples:
  lsoftmax bench scale                                  cifar10, batches of 256, bf16, one process
  mpirun --bind-to none -n 2 lsoftmax bench scale       the same batches, shared by two ranks
  mpirun --bind-to none -n 4 lsoftmax bench scale --network mnist --batch 1024 --json";

/// Measure training steps that ranks under mpirun share, and how much of them is communication
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{EXIT_CODES}"))]
pub struct ScaleBenchCommand {
    /// The network, as in `lsoftmax bench train`
    #[arg(long, value_name = "NAME", default_value = "cifar10")]
    network: String,
    /// Images per batch, of all ranks together
    #[arg(long, value_name = "N", default_value_t = 256)]
    batch: usize,
    /// Classes [default: those of the network's data set]
    #[arg(long, value_name = "K")]
    classes: Option<usize>,
    #[command(flatten)]
    head: HeadArguments,
    /// The precision of products; sums, weights and statistics are always f32
    #[arg(long, default_value = "bf16", value_parser = precision())]
    precision: Precision,
    /// Measure this many steps
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    steps: usize,
    #[command(flatten)]
    output: OutputArguments,
}

impl ScaleBenchCommand {
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        threads::start_beside(launch().local)?;
        let network = NamedNetwork::named(&self.network)?;
        let bench = ScaleBench {
            name: self.network,
            network: network.config(),
            classes: self.classes.unwrap_or(network.classes),
            batch: self.batch,
            head: self.head.settings()?,
            precision: self.precision,
            steps: self.steps,
            ranks: Arc::clone(session.comm()),
        };
        self.output.render(&bench.run()?, text)
    }
}

fn text(timing: &ScaleTiming) -> String {
    let ScaleTiming { network, batch, classes, precision, path, ranks, .. } = timing;
    let (ranks, threads) = (ranks, threads_text(timing.threads));
    let ranks = if *ranks == 1 { "1 rank".into() } else { format!("{ranks} ranks") };
    let mut text = format!(
        "{network}, batches of {batch}, {classes} classes: {precision} on {path}, {ranks} of {threads}\n\
         training {:.1} images/s (median of {} steps)",
        timing.images_per_second, timing.steps,
    );
    if timing.ranks > 1 {
        text += &format!(
            "; {:.1} % of a step is communication: {} exchanges, {:.1} MB sent by each rank\n\
             an exchange of one byte takes {:.0} µs, sums are {:.2} GB/s",
            100.0 * timing.communication_share,
            timing.exchanges_per_step,
            timing.bytes_per_step as f64 / 1e6,
            1e6 * timing.latency_seconds,
            timing.sum_bytes_per_second / 1e9,
        );
    }
    text
}

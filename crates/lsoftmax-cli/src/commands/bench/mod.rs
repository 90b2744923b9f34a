//! `lsoftmax bench`.

mod faces;
mod head;
mod scale;
mod shards;
mod train;

use std::alloc::System;

use clap::{Args, Subcommand};
use lsoftmax::SampleRate;
use lsoftmax_lab::bench::Heap;
use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::threads;
use lsoftmax_mpi::Session;
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

use crate::argument_groups::HeadArguments;
use crate::failure::Failure;
use crate::value_parsers::{lambda, sample_rate};

/// Measure speed and memory on this machine
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct BenchCommand {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Head(head::HeadBenchCommand),
    Train(train::TrainBenchCommand),
    Faces(faces::FacesBenchCommand),
    Scale(scale::ScaleBenchCommand),
    Shards(shards::ShardBenchCommand),
}

impl BenchCommand {
    /// Whether several ranks can share the work.
    pub fn takes_ranks(&self) -> bool {
        matches!(self.benchmark, Benchmark::Scale(_) | Benchmark::Shards(_))
    }

    pub fn run(self, session: &Session) -> Result<String, Failure> {
        match self.benchmark {
            Benchmark::Head(command) => command.run(),
            Benchmark::Train(command) => command.run(),
            Benchmark::Faces(command) => command.run(),
            Benchmark::Scale(command) => command.run(session),
            Benchmark::Shards(command) => command.run(session),
        }
    }
}

#[derive(Debug, Args)]
struct ThreadsArgument {
    /// Threads [default: one per core, or RAYON_NUM_THREADS]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadsArgument {
    /// The number of threads that the benchmark is to start, if given; else those that all commands
    /// share are started here.
    fn start(&self) -> Result<Option<usize>, Failure> {
        if self.threads.is_none() {
            threads::start()?;
        }
        Ok(self.threads.map(usize::from))
    }
}

/// A head that is measured without a network.
#[derive(Debug, Args)]
struct MeasuredHead {
    #[command(flatten)]
    head: HeadArguments,
    /// The share of the classes that a step uses besides those of its samples
    #[arg(long, value_name = "R", default_value = "1", value_parser = sample_rate, allow_negative_numbers = true)]
    sample_rate: SampleRate,
    /// λ: 0 applies the full margin, a large λ approaches softmax
    #[arg(long, value_name = "λ", default_value = "5", value_parser = lambda, allow_negative_numbers = true)]
    lambda: f64,
}

impl MeasuredHead {
    /// The head with its settings.
    fn settings(&self) -> Result<HeadSettings, Failure> {
        Ok(self.head.settings()?.with_sample_rate(self.sample_rate))
    }
}

/// The program's allocator, as the lab sees it.
struct CountedHeap(&'static PeakMemAlloc<System>);

/// The heap of this program.
const HEAP: CountedHeap = CountedHeap(crate::HEAP);

impl Heap for CountedHeap {
    fn reset(&self) {
        self.0.reset_peak_memory();
    }

    fn peak(&self) -> usize {
        self.0.get_peak_memory()
    }
}

fn threads_text(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

//! The commands: each owns its arguments, its help and what it runs.

mod bench;
mod compare;
mod completions;
mod data;
mod demo;
mod embed;
mod eval;
mod export;
mod faces;
mod identify;
mod loss;
mod network;
mod plot;
mod predict;
mod record;
mod report;
mod reproduce;
mod runs;
mod train;
mod verify;

use clap::{Parser, Subcommand};
use lsoftmax_lab::threads;
use lsoftmax_mpi::{Session, launch};

use crate::failure::Failure;
use crate::help::TRAIN_EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  lsoftmax                                              train m = 1 to 4 on MNIST and plot the features
  lsoftmax train mnist --quick
  lsoftmax reproduce table2 --dry-run
  lsoftmax loss --features x.npy --weights w.npy --labels y.npy
  lsoftmax bench head --classes 100000
  lsoftmax bench train --network cifar10
  lsoftmax data fetch cifar10";

/// Large-margin softmax (L-Softmax): training, losses, faces, experiments, benchmarks and data sets.
///
/// Without a command it shows what a margin does.
#[derive(Debug, Parser)]
#[command(name = "lsoftmax", version, after_help = format!("{EXAMPLES}\n\n{TRAIN_EXIT_CODES}"))]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Loss(loss::LossCommand),
    Train(Box<train::TrainCommand>),
    Eval(eval::EvalCommand),
    Predict(predict::PredictCommand),
    Embed(embed::EmbedCommand),
    Export(export::ExportCommand),
    Faces(faces::FacesCommand),
    Verify(verify::VerifyCommand),
    Identify(identify::IdentifyCommand),
    Runs(runs::RunsCommand),
    Compare(compare::CompareCommand),
    Network(network::NetworkCommand),
    Plot(plot::PlotCommand),
    Reproduce(reproduce::ReproduceCommand),
    Record(record::RecordCommand),
    Report(report::ReportCommand),
    Bench(bench::BenchCommand),
    Data(data::DataCommand),
    Completions(completions::CompletionsCommand),
}

impl Arguments {
    /// Does what was asked for and returns the text to print.
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        if session.comm().size() > 1 && !self.command.as_ref().is_some_and(Command::takes_ranks) {
            return Err(Failure::bad_input(
                "this command does not run on several ranks; start it without mpirun",
            ));
        }
        match self.command {
            Some(command) => command.run(session),
            None => {
                threads::start()?;
                demo::run()
            }
        }
    }
}

impl Command {
    /// Whether several ranks can share the work.
    fn takes_ranks(&self) -> bool {
        match self {
            Self::Train(_) | Self::Eval(_) | Self::Embed(_) | Self::Verify(_) => true,
            Self::Bench(command) => command.takes_ranks(),
            _ => false,
        }
    }

    fn run(self, session: &Session) -> Result<String, Failure> {
        // A benchmark starts the number of threads that it is given.
        if !matches!(self, Self::Bench(_) | Self::Completions(_)) {
            threads::start_beside(launch().local)?;
        }
        match self {
            Self::Loss(command) => command.run(),
            Self::Train(command) => command.run(session),
            Self::Eval(command) => command.run(session),
            Self::Predict(command) => command.run(),
            Self::Embed(command) => command.run(session),
            Self::Export(command) => command.run(),
            Self::Faces(command) => command.run(),
            Self::Verify(command) => command.run(session),
            Self::Identify(command) => command.run(),
            Self::Runs(command) => command.run(),
            Self::Compare(command) => command.run(),
            Self::Network(command) => command.run(),
            Self::Plot(command) => command.run(),
            Self::Reproduce(command) => command.run(),
            Self::Record(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Bench(command) => command.run(session),
            Self::Data(command) => command.run(),
            Self::Completions(command) => command.run(),
        }
    }
}

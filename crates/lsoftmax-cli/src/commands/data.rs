//! `lsoftmax data`.

use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use lsoftmax_data::fetch::{
    FetchError, FetchOutcome, FetchProgress, FetchReport, Origin, Timeouts,
};
use lsoftmax_data::{CheckReport, DataDir, Set, SetListing, SetState, check, fetch, list};

use crate::argument_groups::{DataDirArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::{seconds, set};

const EXAMPLES: &str = "\
Examples:
  lsoftmax data list                                    all data sets, with location and status
  lsoftmax data fetch cifar10                           from its official address
  lsoftmax data fetch cifar10 --from https://mirror.example/cifar
  lsoftmax data fetch fashion-mnist --from ~/Downloads --data-dir /data
  lsoftmax data check cifar10 --json

Data sets are searched for in --data-dir, else in the directory that LSOFTMAX_DATA names, else in
lsoftmax in the platform's cache (~/.cache/lsoftmax). Each has a directory there, laid out as
its official archive. An interrupted download is resumed by the same command.";

/// List, download and verify data sets of labelled images
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = false)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct DataCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all data sets, with location, status, size and source
    List {
        #[command(flatten)]
        data_dir: DataDirArgument,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Download a data set, verify it and put it in place; does nothing if it is there and complete
    Fetch {
        /// The data set
        #[arg(value_name = "NAME", value_parser = set())]
        set: &'static Set,
        /// Take the archives from this address or local directory
        #[arg(long, value_name = "URL_OR_DIR")]
        from: Option<String>,
        /// Give up after receiving nothing for this many seconds
        #[arg(long, value_name = "TIME", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
        stall: Duration,
        #[command(flatten)]
        data_dir: DataDirArgument,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Verify the SHA-256 of each file of a data set, then read it and count its images
    Check {
        /// The data set
        #[arg(value_name = "NAME", value_parser = set())]
        set: &'static Set,
        #[command(flatten)]
        data_dir: DataDirArgument,
        #[command(flatten)]
        output: OutputArguments,
    },
}

impl DataCommand {
    pub fn run(self) -> Result<String, Failure> {
        match self.action {
            Action::List { data_dir, output } => {
                let data = data_dir.find()?;
                output.render(list(&data).as_slice(), |sets| list_text(sets, &data.option()))
            }
            Action::Fetch { set, from, stall, data_dir, output } => {
                let data = data_dir.find()?;
                let origin = from.map_or(Ok(Origin::Official), |from| Origin::parse(&from))?;
                let timeouts = Timeouts { stall, ..Timeouts::default() };
                output.render(&fetch_with_bar(set, &data, &origin, timeouts)?, fetched_text)
            }
            Action::Check { set, data_dir, output } => {
                output.render(&check(set, &data_dir.find()?)?, checked_text)
            }
        }
    }
}

/// Fetches with a progress bar on stderr, if that is a terminal.
fn fetch_with_bar(
    set: &'static Set,
    data: &DataDir,
    origin: &Origin,
    timeouts: Timeouts,
) -> Result<FetchReport, FetchError> {
    let style = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is valid");
    let bar = ProgressBar::no_length().with_style(style);
    let mut before = None;
    let fetched = fetch(set, data, origin, timeouts, &mut |progress| match progress {
        FetchProgress::Downloading { archive, received, total } => {
            if before.as_deref() != Some(archive) {
                bar.set_message(archive.to_owned());
                bar.reset();
                before = Some(archive.to_owned());
            }
            bar.update(|state| {
                state.set_pos(received);
                state.set_len(total.unwrap_or(received));
            });
        }
        FetchProgress::Unpacking { archive } => bar.set_message(format!("{archive}: unpacking")),
    });
    bar.finish_and_clear();
    fetched
}

/// The sets; `option` names the data directory in a suggested command.
fn list_text(sets: &[SetListing], option: &str) -> String {
    let entry = |SetListing { name, about, state, location, bytes, source, .. }: &SetListing| {
        let size = format!("{:.1} MB", *bytes as f64 / 1e6);
        let state = match state {
            SetState::BuiltIn => format!("built in, {size}"),
            SetState::Present => format!("downloaded, {size} in {location}"),
            SetState::Incomplete => {
                format!(
                    "incomplete in {location}; `lsoftmax data fetch {name}{option}` gets the rest"
                )
            }
            SetState::Missing => {
                format!(
                    "not downloaded; `lsoftmax data fetch {name}{option}` gets {size} into {location}"
                )
            }
        };
        format!("{name:<13}  {about}\n{:<15}{state}\n{:<15}from {source}", "", "")
    };
    sets.iter().map(entry).collect::<Vec<_>>().join("\n")
}

fn fetched_text(FetchReport { name, location, outcome }: &FetchReport) -> String {
    match outcome {
        FetchOutcome::BuiltIn => {
            format!("{name} is built into the program; there is nothing to fetch")
        }
        FetchOutcome::AlreadyPresent => format!("{name} is already complete in {location}"),
        FetchOutcome::Fetched => format!("{name} is now in {location}"),
    }
}

fn checked_text(checked: &CheckReport) -> String {
    let CheckReport { name, location, files, shape, classes, train, test, train_of_class } =
        checked;
    let least = train_of_class.iter().min().copied().unwrap_or(0);
    let most = train_of_class.iter().max().copied().unwrap_or(0);
    let each = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    format!(
        "{name} is complete: {} files with the right SHA-256 ({location})\n\
         {train} training images, {test} test images, {shape}; \
         {classes} classes of {each} training images",
        files.len(),
    )
}

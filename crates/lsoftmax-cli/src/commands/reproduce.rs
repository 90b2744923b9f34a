//! `lsoftmax reproduce`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use lsoftmax_lab::estimate::Estimator;
use lsoftmax_lab::records::Records;
use lsoftmax_lab::report;
use lsoftmax_lab::reproduce::{self, Experiment, PlannedRun, Progress, QueueEvent, QueueOutcome};
use lsoftmax_lab::train::Options;
use serde::Serialize;

use crate::argument_groups::{DataDirArgument, OutputArguments, RecordsArgument};
use crate::failure::Failure;
use crate::help::{KERNELS, TRAIN_EXIT_CODES};
use crate::output::tell;
use crate::progress::TrainingProgress;
use crate::signals::stop_flag;
use crate::value_parsers::{duration, scale};

const EXAMPLES: &str = "\
Examples:
  lsoftmax reproduce table2 --dry-run                   the runs, and how long they will take here
  lsoftmax reproduce table2                             make them; Ctrl-C stops, the same command resumes
  lsoftmax reproduce all --seeds 3 --budget 8h          as many as fit into a night
  lsoftmax reproduce table3 --scale 1                   at the paper's length
  lsoftmax reproduce table3 --only cifar10-m            softmax and the margins on CIFAR10";

/// Make the runs behind the paper's tables and figures: a queue that can be stopped and resumed anywhere
///
/// A run that ends is recorded in RECORDS/runs and not made again; `lsoftmax report` makes the tables and
/// figures of the records.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{TRAIN_EXIT_CODES}"))]
pub struct ReproduceCommand {
    /// Which of them: table2 to table5, fig2 to fig7, a study, or all
    #[arg(value_name = "NAME", default_value = "all", value_parser = experiments())]
    names: Vec<String>,
    /// The length of the runs as a fraction of the paper's, such as 1/6 [default: one that fits each]
    #[arg(long, value_name = "S", value_parser = scale)]
    scale: Option<f64>,
    /// Runs of each kind, with seeds from 1
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Only the runs with this in their names, such as `m4-3000` or `cifar10-plus`; repeat it for more of them
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Stop after this time, such as 8h or 90m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Print the runs and how long each will take on this machine, and train nothing
    #[arg(long)]
    dry_run: bool,
    /// The directory of unfinished runs and models
    #[arg(long, value_name = "DIR", default_value = "runs/reproduce")]
    runs: PathBuf,
    #[command(flatten)]
    records: RecordsArgument,
    #[command(flatten)]
    data_dir: DataDirArgument,
    #[command(flatten)]
    output: OutputArguments,
}

/// The names of the experiments, and `all`.
fn experiments() -> clap::builder::PossibleValuesParser {
    Experiment::ALL.iter().map(|experiment| experiment.name).chain(["all"]).into()
}

/// A run of the plan, as `--dry-run --json` prints it.
#[derive(Debug, Serialize)]
struct PlanLine<'a> {
    id: &'a str,
    label: &'a str,
    recorded: bool,
    interrupted: bool,
    /// The estimated duration on this machine.
    seconds: f64,
}

/// What a queue that came to its end made, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Made {
    /// The number of runs that were recorded.
    recorded: usize,
    /// The tables of all records.
    tables: Vec<report::ResultTable>,
}

impl ReproduceCommand {
    pub fn run(self) -> Result<String, Failure> {
        let chosen: Vec<&Experiment> = Experiment::ALL
            .iter()
            .filter(|experiment| {
                self.names.iter().any(|name| name == experiment.name || name == "all")
            })
            .collect();
        let mut records = Records::read(&self.records.records)?;
        let mut plan = reproduce::plan(&chosen, self.scale, self.seeds, &records, &self.runs);
        if !self.only.is_empty() {
            plan.retain(|run| self.only.iter().any(|text| run.id.contains(text)));
            if plan.is_empty() {
                return Err(Failure::bad_input(format!(
                    "no run of these has {} in its name; --dry-run without --only lists the names",
                    self.only.join(" or ")
                )));
            }
        }
        let durations = estimate(&plan)?;
        if self.dry_run {
            return self.show_plan(&plan, &durations);
        }
        let options = Options { stop: stop_flag()?, ..Options::new(self.data_dir.clone().find()?) };
        let deadline = self.budget.map(|budget| Instant::now() + budget);
        let mut progress = TrainingProgress::new();
        let mut prefix = String::new();
        let outcome =
            reproduce::run(&plan, &mut records, &self.runs, &options, deadline, &mut |event| {
                match event {
                    QueueEvent::Started { number, runs, run } => {
                        let left: Duration = plan
                            .iter()
                            .filter(|run| run.progress != Progress::Recorded)
                            .skip(number - 1)
                            .filter_map(|run| durations.get(&run.id))
                            .sum();
                        let left = duration_text(left);
                        progress.queue(&format!(
                            "run {number} of {runs}: {}; {left} left in the queue",
                            run.label
                        ));
                        prefix = format!("{}: ", run.id);
                    }
                    QueueEvent::Training(event) => progress.show(&prefix, event),
                    QueueEvent::Recorded { run, lfw: Some(lfw), .. } => {
                        let accuracies = lfw.protocols.iter().map(|result| {
                            format!("{:.2} % ({})", 100.0 * result.accuracy, result.protocol.name())
                        });
                        let accuracies = accuracies.collect::<Vec<_>>().join(", ");
                        progress.line(&format!("recorded {}: LFW {accuracies}", run.id));
                    }
                    QueueEvent::Recorded { run, test_error, .. } => {
                        progress.line(&match test_error {
                            Some(error) => {
                                format!(
                                    "recorded {}: {error:.2} % of the test images wrong",
                                    run.id
                                )
                            }
                            None => format!("recorded {}: training diverged", run.id),
                        })
                    }
                    QueueEvent::Failed { run, reason } => {
                        progress.line(&format!("{}: {reason}", run.id))
                    }
                }
            })?;
        progress.finish();
        self.end(outcome, &chosen, &records)
    }

    fn show_plan(
        &self,
        plan: &[PlannedRun],
        durations: &BTreeMap<String, Duration>,
    ) -> Result<String, Failure> {
        let seconds = |run: &PlannedRun| durations.get(&run.id).copied().unwrap_or_default();
        let lines: Vec<PlanLine<'_>> = plan
            .iter()
            .map(|run| PlanLine {
                id: &run.id,
                label: &run.label,
                recorded: run.progress == Progress::Recorded,
                interrupted: run.progress == Progress::Interrupted,
                seconds: seconds(run).as_secs_f64(),
            })
            .collect();
        self.output.render(&lines, |_| {
            let line = |run: &PlannedRun| {
                let state = match run.progress {
                    Progress::Recorded => "recorded".into(),
                    Progress::Interrupted => {
                        format!("{} at most, interrupted", duration_text(seconds(run)))
                    }
                    Progress::Missing => duration_text(seconds(run)),
                };
                format!("{:<34} {}: {state}", run.id, run.label)
            };
            let missing = plan.iter().filter(|run| run.progress != Progress::Recorded);
            let total: Duration = missing.clone().map(seconds).sum();
            let mut text: Vec<String> = plan.iter().map(line).collect();
            text.push(format!(
                "missing: {}, about {} on this machine",
                runs(missing.count()),
                duration_text(total)
            ));
            text.join("\n")
        })
    }

    fn end(
        &self,
        outcome: QueueOutcome,
        chosen: &[&Experiment],
        records: &Records,
    ) -> Result<String, Failure> {
        let QueueOutcome { recorded, failed, interrupted } = outcome;
        let tables: Vec<_> = chosen
            .iter()
            .filter(|experiment| !experiment.rows().is_empty())
            .map(|experiment| report::table(experiment, records))
            .collect();
        let text = tables.iter().map(report::ResultTable::to_text).collect::<Vec<_>>().join("\n");
        let made = format!("{} recorded in {}", runs(recorded), self.records.records.display());
        if interrupted {
            tell(&text);
            return Err(Failure::interrupted(format!("stopped; {made}; the same command resumes")));
        }
        if failed > 0 {
            tell(&text);
            return Err(Failure::bad_input(format!(
                "{} could not be made, for the reasons above; {made}",
                runs(failed)
            )));
        }
        self.output.render(&Made { recorded, tables }, |_| {
            format!("{text}\n{made}; next: `lsoftmax report`")
        })
    }
}

/// The duration of every run that is missing.
fn estimate(plan: &[PlannedRun]) -> Result<BTreeMap<String, Duration>, Failure> {
    let mut estimator = Estimator::default();
    let missing = plan.iter().filter(|run| run.progress != Progress::Recorded);
    let durations = missing.map(|run| {
        let duration = estimator.duration(&run.recipe)?;
        Ok((run.id.clone(), duration))
    });
    durations.collect()
}

/// A number of runs in words.
fn runs(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// A duration in words: `2 h 05 min`, `12 min`, `40 s`.
fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{hours} h {minutes:02} min"),
    }
}

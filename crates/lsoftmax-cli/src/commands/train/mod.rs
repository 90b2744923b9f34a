//! `lsoftmax train`.

mod recipe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lsoftmax_data::{DataDir, shell_word};
use lsoftmax_lab::recipe::{Expected, Keep, OnDivergence, Recipe};
use lsoftmax_lab::run::{RECIPE, newest_step};
use lsoftmax_lab::train::{
    self, Event, KeptModel, NewLength, Options, RunOutcome, RunSummary, TrainError,
};
use lsoftmax_mpi::Session;

use crate::argument_groups::{DataDirArgument, DeviceArgument, OutputArguments};
use crate::failure::{Code, Failure};
use crate::help::{KERNELS, TRAIN_EXIT_CODES};
use crate::progress::TrainingProgress;
use crate::ranks::{self, advice};
use crate::signals::stop_flag;
use crate::value_parsers::on_divergence;
use recipe::RecipeArguments;

const EXAMPLES: &str = "\
Examples:
  lsoftmax train mnist --quick                          a minute or two
  lsoftmax train mnist --margin 4 --out runs/mnist      a row of the paper's table 2
  lsoftmax train cifar10 --margin 3 --seed 7 --steps 6000
  lsoftmax train cifar10 --head arcface --margin 0.3 --scale 16
  lsoftmax train --data my-photos/                      one directory of images per class
  lsoftmax train --resume runs/mnist                    continues where it stopped
  lsoftmax train --resume runs/my-photos-m4-s1 --data moved/my-photos/
  lsoftmax train --resume runs/mnist --steps 30000 --keep-schedules
  lsoftmax train --data my-photos/ --init runs/cifar10-m4-s1 --freeze 5 --learning-rate 0.01

With other --steps than the recipe's, its learning rate and λ schedules are stretched to fit.";

/// Train a network by a recipe of the paper, or on a folder of images
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{KERNELS}\n\n{TRAIN_EXIT_CODES}"))]
pub struct TrainCommand {
    /// List the recipes
    #[arg(long, conflicts_with_all = ["recipe", "resume"])]
    list: bool,
    /// Resume the run in this directory; --data says where its images are now, if they were moved, and
    /// --steps gives it another length
    #[arg(long, value_name = "RUN", conflicts_with_all = RecipeArguments::fixed_ids(), conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// The directory of the run [default: runs/RECIPE-HEAD-sSEED, such as runs/mnist-m4-s1 or
    /// runs/mnist-arcface-m0.3-scale16-s1]
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
    /// Replace the run that is in the directory
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    #[command(flatten)]
    recipe: RecipeArguments,
    /// When training diverges: stop, or roll back to the last checkpoint and continue with a larger λ
    /// [default: what the recipe says, which is to stop]
    #[arg(long, value_parser = on_divergence())]
    on_divergence: Option<OnDivergence>,
    /// Write event files for TensorBoard to RUN/tensorboard; a resumed run continues them by itself
    #[arg(long)]
    tensorboard: bool,
    /// Under mpirun: end the run if a rank does not answer for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    rank_timeout: u64,
    /// Under mpirun: allow ranks with different kernel paths, whose results differ in the last bits
    #[arg(long)]
    different_kernels: bool,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    data_dir: DataDirArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl TrainCommand {
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        if self.list {
            return list(&self.output);
        }
        let new_length = self.new_length();
        let options = Options {
            device: self.device.device,
            on_divergence: self.on_divergence,
            tensorboard: self.tensorboard,
            stop: stop_flag()?,
            overwrite: self.overwrite,
            new_length,
            moved_data: self.resume.as_ref().and(self.recipe.data.clone()),
            ranks: Arc::clone(session.comm()),
            different_kernels: self.different_kernels,
            ..Options::new(self.data_dir.clone().find()?)
        };
        session.watch(Arc::clone(&options.stop));
        let mut progress = TrainingProgress::new();
        let mut observe = |event: Event<'_>| {
            if let Event::Started { .. } = event {
                session.set_time_limit(Duration::from_secs(self.rank_timeout));
            }
            if ranks::is_first() {
                progress.show("", event);
            }
        };
        let (out, ended) = match self.resume {
            Some(out) => {
                session.set_advice(advice(&out, &options.data));
                let ended = train::resume(&out, &options, &mut observe);
                (out, ended)
            }
            None => {
                let recipe = self.recipe.build(self.on_divergence, &options.data)?;
                let out = self.out.unwrap_or_else(|| default_out(&recipe));
                session.set_advice(advice(&out, &options.data));
                let ended = train::start(recipe, &out, &options, &mut observe);
                (out, ended)
            }
        };
        progress.finish();
        match ended.map_err(|error| failure(error, &out, &options.data))? {
            RunOutcome::NotBegun => {
                Err(Failure::interrupted("stopped before the first step; nothing was written"))
            }
            RunOutcome::Interrupted { step } => {
                let command = resume_command(&out, &options.data);
                let stopped = format!("stopped after step {step}; resume with {command}");
                Err(Failure::interrupted(stopped))
            }
            RunOutcome::Done(summary) => {
                self.output.render(&*summary, |summary| text(summary, &out, &options.data))
            }
        }
    }

    /// Another length for a resumed run.
    fn new_length(&self) -> Option<NewLength> {
        let keep_schedules = self.recipe.keep_schedules;
        self.resume.as_ref()?;
        self.recipe.steps.map(|steps| NewLength { steps, keep_schedules })
    }
}

fn default_out(Recipe { name, head, seed, .. }: &Recipe) -> PathBuf {
    PathBuf::from(format!("runs/{name}-{}-s{seed}", head.file_name()))
}

fn resume_command(out: &Path, data: &DataDir) -> String {
    format!("`lsoftmax train --resume {}{}`", shell_word(out), data.option())
}

/// A run that the machine has ended, as on a full disk, can go on from its last checkpoint.
fn failure(error: TrainError, out: &Path, data: &DataDir) -> Failure {
    let failure = Failure::from(error);
    match newest_step(out) {
        Ok(step) if step > 0 && failure.code() == Code::Failed => {
            let command = resume_command(out, data);
            failure.followed_by(&format!("; then resume after step {step} with {command}"))
        }
        _ => failure,
    }
}

fn list(output: &OutputArguments) -> Result<String, Failure> {
    let recipes = Recipe::NAMES.iter().map(|name| Recipe::built_in(name));
    let recipes = recipes.collect::<Result<Vec<_>, _>>()?;
    let line = |Recipe { name, data, steps, batch, source, .. }: &Recipe| {
        let data = data.to_string();
        format!("{name:<30}  {data:<10}  {steps:>5} x {batch}  {source}")
    };
    output.render(&recipes, |recipes| recipes.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn text(summary: &RunSummary, out: &Path, data: &DataDir) -> String {
    let RunSummary { recipe, head, steps, seconds, .. } = summary;
    let mut lines = vec![format!("{recipe}, {head}: {steps} steps in {seconds:.0} s")];
    let planned = Recipe::from_file(&out.join(RECIPE)).ok();
    if let Some(Recipe { steps: planned, .. }) = planned.as_ref().filter(|it| it.steps > *steps) {
        lines.push(format!(
            "it ended before step {planned}: the held-out images no longer improved"
        ));
    }
    if let Some(KeptModel { model: Keep::Best, step, .. }) = summary.kept {
        lines.push(format!("the best model on the held-out images was kept, that of step {step}"));
    }
    if let Some(found) = summary.validation {
        let (error, wrong, images) = (found.error, found.wrong, found.images);
        lines.push(format!("held out: {error:.2} % wrong ({wrong} of {images})"));
    }
    if let Some(test) = summary.test {
        lines.push(format!(
            "test: {:.2} % wrong ({} of {} images), {:.1}° to the class on average",
            test.error, test.wrong, test.images, test.angle
        ));
    }
    let expected = planned.and_then(|recipe| recipe.expected_result());
    if let Some(Expected { test_error, tolerance }) = expected {
        lines.push(format!(
            "the paper: {test_error:.2} % wrong (a run within {tolerance} of it counts as reproduced)"
        ));
    }
    let (word, option) = (shell_word(out), data.option());
    lines.push(format!(
        "{} has the model; next: `lsoftmax eval {word}{option}`, `lsoftmax predict {word} IMAGE`",
        out.display()
    ));
    lines.join("\n")
}

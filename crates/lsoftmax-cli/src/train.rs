//! `lsoftmax train`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lsoftmax_lab::data::DataDir;
use lsoftmax_lab::recipe::{Loss, OnDivergence, Recipe};
use lsoftmax_lab::run::Metric;
use lsoftmax_lab::train::{self, Ended, Event, Options, Summary};

use crate::arguments::{Divergence, TrainArguments};

/// The run was stopped from outside.
#[derive(Debug, thiserror::Error)]
#[error(
    "stopped after step {step}; everything is kept: `lsoftmax train --resume {}{}` goes on",
    run.display(),
    data_dir.as_ref().map_or(String::new(), |path| format!(" --data-dir {}", path.display()))
)]
pub struct Interrupted {
    step: u64,
    run: PathBuf,
    data_dir: Option<PathBuf>,
}

pub fn run(arguments: TrainArguments) -> anyhow::Result<String> {
    if arguments.list {
        return list(arguments.json);
    }
    let options = Options {
        data: DataDir::find(arguments.data_dir.clone())?,
        on_divergence: arguments.on_divergence.map(OnDivergence::from),
        loader_threads: 1,
        tensorboard: arguments.tensorboard,
        stop: stop_on_signals()?,
    };
    let mut progress = Progress::new();
    let mut observe = |event: Event<'_>| progress.show("", event);
    let (out, ended) = match &arguments.resume {
        Some(out) => (out.clone(), train::resume(out, &options, &mut observe)),
        None => {
            let recipe = recipe(&arguments, &options.data)?;
            let out = arguments.out.clone().unwrap_or_else(|| default_out(&recipe));
            let ended = train::start(recipe, &out, &options, &mut observe);
            (out, ended)
        }
    };
    progress.finish();
    match ended? {
        Ended::Interrupted { step } => {
            Err(Interrupted { step, run: out, data_dir: arguments.data_dir }.into())
        }
        Ended::Done(summary) if arguments.json => crate::json(&summary),
        Ended::Done(summary) => Ok(text(&summary, &out)),
    }
}

/// Ctrl-C, or a request to end, sets the flag; a second one ends the program at once.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(crate::INTERRUPTED.into());
        }
    };
    ctrlc::set_handler(handler).context("signals cannot be caught")?;
    Ok(stop)
}

/// The recipe, with what the arguments say put over it.
fn recipe(arguments: &TrainArguments, data: &DataDir) -> anyhow::Result<Recipe> {
    let of_data = arguments.data.as_deref().unwrap_or_default();
    let mut recipe = match &arguments.recipe {
        Some(name) if name.ends_with(".toml") && arguments.quick => {
            return Err(Contradiction(format!("{name} has no quick variant: give --steps")).into());
        }
        Some(name) if name.ends_with(".toml") => train::recipe_from_file(Path::new(name))?,
        Some(name) if arguments.quick => Recipe::quick(name)?,
        Some(name) => Recipe::built_in(name)?,
        None => train::recipe_for(of_data, arguments.quick, data)?,
    };
    let TrainArguments { margin, seed, steps, batch, learning_rate, precision, .. } = arguments;
    if margin.is_some() && recipe.loss == Loss::Hinge {
        let name = &recipe.name;
        let problem =
            format!("{name} trains the hinge loss, which has no margin: leave --margin out");
        return Err(Contradiction(problem).into());
    }
    if let Some(steps) = steps {
        recipe =
            if arguments.keep_schedules { recipe.cut_to(*steps) } else { recipe.scaled(*steps) };
    }
    if let Some(rate) = learning_rate {
        recipe.learning_rate = recipe.learning_rate.clone().with_rate(*rate);
    }
    if let Some(data) = arguments.data.as_ref().filter(|data| **data != recipe.data) {
        recipe = recipe.with_data(data);
    }
    recipe.validation = arguments.validation.unwrap_or(recipe.validation);
    recipe.margin = margin.unwrap_or(recipe.margin);
    recipe.seed = seed.unwrap_or(recipe.seed);
    recipe.batch = batch.unwrap_or(recipe.batch);
    recipe.precision = precision.unwrap_or(recipe.precision);
    recipe.on_divergence = arguments.on_divergence.map_or(recipe.on_divergence, OnDivergence::from);
    if batch.is_some() || learning_rate.is_some() {
        recipe.expected.clear();
    }
    recipe.check()?;
    Ok(recipe)
}

/// Arguments that do not go together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(String);

impl From<Divergence> for OnDivergence {
    fn from(divergence: Divergence) -> Self {
        match divergence {
            Divergence::Stop => Self::Stop,
            Divergence::Rollback => Self::Rollback,
        }
    }
}

fn default_out(recipe: &Recipe) -> PathBuf {
    let Recipe { name, margin, seed, .. } = recipe;
    PathBuf::from(format!("runs/{name}-m{margin}-s{seed}"))
}

fn list(json: bool) -> anyhow::Result<String> {
    let recipes = Recipe::NAMES.iter().map(|name| Recipe::built_in(name));
    let recipes = recipes.collect::<Result<Vec<_>, _>>()?;
    if json {
        return crate::json(&recipes);
    }
    let line = |Recipe { name, data, steps, batch, source, .. }: &Recipe| {
        format!("{name:<32} {data:<9} {steps:>6} x {batch}  {source}")
    };
    Ok(recipes.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn text(summary: &Summary, out: &Path) -> String {
    let Summary { recipe, margin, steps, seconds, .. } = summary;
    let test = summary.test.map_or(String::new(), |test| {
        format!(
            "\ntest: {:.2} % wrong ({} of {} images), {:.1}° to the class on average",
            test.error, test.wrong, test.images, test.angle
        )
    });
    let validation = summary.validation.map_or(String::new(), |found| {
        format!("\nheld out: {:.2} % wrong ({} of {})", found.error, found.wrong, found.images)
    });
    let out = out.display();
    format!(
        "{recipe}, m = {margin}: {steps} steps in {seconds:.0} s{validation}{test}\n\
         {out} has the model; next: `lsoftmax eval {out}`, `lsoftmax predict {out} IMAGE`"
    )
}

/// A bar on a terminal, lines elsewhere.
pub struct Progress {
    bar: ProgressBar,
    terminal: bool,
    error: Option<f64>,
}

impl Progress {
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        let style = "{wide_bar} {pos}/{len} {eta} left\n{msg}";
        let style = ProgressStyle::with_template(style).expect("the template is right");
        Self { bar: bar.with_style(style), terminal, error: None }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows what happens in the run that `prefix` stands for.
    pub fn show(&mut self, prefix: &str, event: Event<'_>) {
        match event {
            Event::Began { step, steps, notes, .. } => {
                notes.iter().for_each(|note| self.line(note));
                if step > 0 {
                    self.line(&format!("{prefix}going on after step {step} of {steps}"));
                }
                self.error = None;
                self.bar.set_length(steps);
                self.bar.set_position(step);
                self.bar.reset_eta();
            }
            Event::Stepped { step } => self.bar.set_position(step),
            Event::Logged(metric) => self.log(prefix, metric),
            Event::Kept { .. } => {}
        }
    }

    fn log(&mut self, prefix: &str, metric: &Metric) {
        match metric {
            Metric::Training {
                step,
                loss,
                accuracy,
                angle,
                lambda,
                learning_rate,
                images_per_second,
                ..
            } => {
                let error =
                    self.error.map_or(String::new(), |e| format!(", held out {e:.2} % wrong"));
                let text = format!(
                    "loss {loss:.4}, {:.2} % right, {angle:.1}°, λ {lambda:.3}, rate {learning_rate:.4}, {images_per_second:.0} images/s{error}",
                    100.0 * accuracy
                );
                if self.terminal {
                    self.bar.set_message(format!("{prefix}{text}"));
                } else {
                    self.line(&format!("{prefix}step {step}: {text}"));
                }
            }
            Metric::Validation { step, error, loss } => {
                self.error = Some(*error);
                if !self.terminal {
                    self.line(&format!("{prefix}step {step}: held out {error:.2} % wrong, loss {loss:.4}"));
                }
            }
            Metric::Rollback { step, to, lambda_floor, reason } => self.line(&format!(
                "{prefix}step {step}: {reason}; going on from step {to} with λ of at least {lambda_floor}"
            )),
        }
    }

    fn line(&self, text: &str) {
        if self.terminal { self.bar.println(text) } else { crate::tell(text) }
    }
}

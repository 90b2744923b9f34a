//! The progress of training and of work on images: a bar on a terminal, lines of training elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use lsoftmax_lab::number_text::{decimals_text, number_text};
use lsoftmax_lab::objective::BatchMetrics;
use lsoftmax_lab::run::{Metric, Rollback};
use lsoftmax_lab::train::{Event, Phase};

use crate::output::tell;

/// Shows the events of training runs on stderr.
pub struct TrainingProgress {
    bar: ProgressBar,
    terminal: bool,
    /// The last line of the log, which is hidden while images are read or evaluated.
    message: String,
    /// The error on the validation images in percent, when last evaluated.
    validation_error: Option<f64>,
    /// The error on the test images in percent, when last evaluated for their curve.
    test_error: Option<f64>,
}

impl TrainingProgress {
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        // The terminal shows Ctrl-C in a line of its own, so that the first line is not cleared: of the two it is the
        // one to keep.
        let style =
            ProgressStyle::with_template("{prefix}{wide_msg}\n{bar:40} {pos}/{len}, {eta} left");
        let bar = bar.with_style(style.expect("the template is valid"));
        Self { bar, terminal, message: String::new(), validation_error: None, test_error: None }
    }

    /// Shows where a queue of runs is, above the progress of the run.
    pub fn queue(&self, text: &str) {
        if self.terminal { self.bar.set_prefix(format!("{text}\n")) } else { tell(text) }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Shows an event of a run; `prefix` tells runs apart.
    pub fn show(&mut self, prefix: &str, event: Event<'_>) {
        match event {
            Event::Started { step, steps, notes } => {
                notes.iter().for_each(|note| self.line(note));
                if step > 0 {
                    self.line(&format!("{prefix}resuming after step {step} of {steps}"));
                }
                (self.validation_error, self.test_error) = (None, None);
                self.message.clear();
                self.bar.set_message("");
                self.bar.set_length(steps);
                self.bar.set_position(step);
                self.bar.reset_eta();
            }
            Event::Progress { phase, done, total } => {
                let what = match phase {
                    Phase::Reading => "reading the images",
                    Phase::Validation => "evaluating the held-out images",
                    Phase::Test => "evaluating the test images",
                };
                self.bar.set_message(format!("{prefix}{what}: {done} of {total}"));
            }
            Event::Stepped { step } => {
                if self.terminal && self.bar.message() != self.message {
                    self.bar.set_message(self.message.clone());
                }
                self.bar.set_position(step);
            }
            Event::Logged(metric) => self.log(prefix, metric),
            Event::Checkpointed { .. } => {}
        }
    }

    fn log(&mut self, prefix: &str, metric: &Metric) {
        match metric {
            Metric::Training { step, means, lambda, learning_rate, images_per_second } => {
                let BatchMetrics { loss, accuracy, angle, .. } = means;
                let lambda = lambda.map(|lambda| format!("λ {}, ", decimals_text(lambda, 3)));
                let text = format!(
                    "loss {}, {:.2} % right, {angle:.1}°, {}\
                     rate {}, {images_per_second:.0} images/s",
                    decimals_text(*loss, 4),
                    100.0 * accuracy,
                    lambda.unwrap_or_default(),
                    decimals_text(*learning_rate, 4)
                );
                if self.terminal {
                    self.message = format!("{prefix}{text}");
                    self.bar.set_message(self.message.clone());
                } else {
                    let wrong = |what: &str, error: Option<f64>| {
                        error.map_or(String::new(), |error| format!(", {what} {error:.2} % wrong"))
                    };
                    let validation = wrong("held out", self.validation_error);
                    let test = wrong("test", self.test_error);
                    self.line(&format!("{prefix}step {step}: {text}{validation}{test}"));
                }
            }
            Metric::Validation { step, error, loss } => {
                self.validation_error = Some(*error);
                self.line(&format!(
                    "{prefix}step {step}: held out {error:.2} % wrong, loss {loss:.4}"
                ));
            }
            Metric::Test { step, error, loss } => {
                self.test_error = Some(*error);
                self.line(&format!("{prefix}step {step}: test {error:.2} % wrong, loss {loss:.4}"));
            }
            Metric::Rollback(Rollback { step, to, lambda_floor, reason }) => self.line(&format!(
                "{prefix}step {step}: {reason}; \
                 resuming from step {to} with λ of at least {}",
                number_text(*lambda_floor)
            )),
        }
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        if self.terminal { self.bar.println(text) } else { tell(text) }
    }
}

/// The progress of work on many images, on a terminal.
pub struct ImageProgress(ProgressBar);

impl ImageProgress {
    /// `what` is done with the images, such as "aligned".
    pub fn new(what: &'static str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        let template = "{bar:40} {pos}/{len} {msg}, {eta} left";
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        Self(bar.with_style(style).with_message(what))
    }

    pub fn show(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

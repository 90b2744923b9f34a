//! `lsoftmax loss`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lsoftmax::Precision;
use lsoftmax_lab::loss::{self, InputFiles, LossResult, LossSettings};

use crate::argument_groups::{HeadArguments, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::{lambda, precision};

const EXAMPLES: &str = "\
Examples:
  From Python, with x (N x D), w (K x D) and y (N) as numpy arrays:
    numpy.save('x.npy', x); numpy.save('w.npy', w); numpy.save('y.npy', y)
  The mean loss at margin 4:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy
  The loss of each sample, and the gradients of the mean, in grad/:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy \\
      --margin 2 --lambda 5 --reduction none --grad-dir grad --json
  Plain softmax cross-entropy, and ArcFace:
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy --margin 1
    lsoftmax loss --features x.npy --weights w.npy --labels y.npy --head arcface --margin 0.5 --scale 64

Arrays may be in C or Fortran order and of either byte order. The loss is computed in float32.";

/// Compute the loss of arrays in .npy files, and its gradients
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct LossCommand {
    /// x, samples x features: float32, float64 or float16
    #[arg(long, value_name = "FILE")]
    features: PathBuf,
    /// W, classes x features: float32, float64 or float16
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
    /// y, one integer per sample, from 0 to classes − 1
    #[arg(long, value_name = "FILE")]
    labels: PathBuf,
    /// b, one number per class, added outside the margin
    #[arg(long, value_name = "FILE")]
    bias: Option<PathBuf>,
    #[command(flatten)]
    head: HeadArguments,
    /// λ: 0 applies the full margin, a large λ approaches softmax
    #[arg(long, value_name = "λ", default_value = "0", value_parser = lambda, allow_negative_numbers = true)]
    lambda: f64,
    /// The precision of matrix products; both accumulate in f32
    #[arg(long, default_value = "f32", value_parser = precision())]
    precision: Precision,
    /// Report the mean loss only, or the loss of each sample as well
    #[arg(long, value_enum, default_value_t = Reduction::Mean)]
    reduction: Reduction,
    /// Write the gradients of the mean loss here: features.npy, weights.npy and, with a bias, bias.npy
    #[arg(long, value_name = "DIR")]
    grad_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Reduction {
    Mean,
    None,
}

impl LossCommand {
    pub fn run(self) -> Result<String, Failure> {
        let head = self.head.settings()?;
        let Self { features, weights, labels, bias, lambda, precision, .. } = self;
        let files = InputFiles { features, weights, labels, bias };
        let every_sample = self.reduction == Reduction::None;
        let settings = LossSettings { head, lambda, precision, every_sample };
        let result = loss::run(&files, &settings, self.grad_dir.as_deref())?;
        self.output.render(&result, text)
    }
}

fn text(result: &LossResult) -> String {
    let LossResult { loss, samples, classes, features, head, lambda, report, .. } = result;
    let margin = result.margin.value();
    let scale = result.scale.map_or(String::new(), |scale| format!(", s = {scale}"));
    let (accuracy, inside) = (100.0 * result.accuracy, 100.0 * report.inside_margin);
    let theta = &report.theta;
    let mut lines = vec![
        format!(
            "loss      {loss:.6}  (mean of {samples} samples, {features} features, \
             {classes} classes; {head}, m = {margin}{scale}, λ = {lambda})"
        ),
        format!(
            "accuracy  {accuracy:.2} %  (without the margin; {inside:.2} % of samples are inside it)"
        ),
        format!(
            "angles    {:.1}° on average between a sample and its class, half from {:.1}° to {:.1}°",
            theta.mean, theta.p25, theta.p75,
        ),
    ];
    let losses = result.losses.iter().flatten().enumerate();
    lines.extend(losses.map(|(sample, loss)| format!("sample {sample}  {loss}")));
    lines.join("\n")
}

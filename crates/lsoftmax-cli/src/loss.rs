//! `lsoftmax loss`.

use std::fmt::Write;

use lsoftmax_lab::loss::{self, InputFiles, LossResult, LossSettings};

use crate::arguments::{LossArguments, Reduction};

pub fn run(arguments: LossArguments) -> anyhow::Result<String> {
    let LossArguments { features, weights, labels, bias, margin, lambda, precision, .. } =
        arguments;
    let files = InputFiles { features, weights, labels, bias };
    let settings = LossSettings {
        margin,
        lambda,
        precision,
        every_sample: arguments.reduction == Reduction::None,
    };
    let result = loss::run(&files, &settings, arguments.grad_dir.as_deref())?;
    if arguments.json { crate::json(&result) } else { Ok(text(&result)?) }
}

fn text(result: &LossResult) -> Result<String, std::fmt::Error> {
    let LossResult { loss, samples, classes, features, margin, lambda, report, .. } = result;
    let (accuracy, inside) = (100.0 * result.accuracy, 100.0 * report.inside_margin);
    let theta = &report.theta;
    let mut text = format!(
        "loss      {loss:.6}  (mean of {samples} samples, {features} features, {classes} classes; \
         m = {margin}, λ = {lambda})\n\
         accuracy  {accuracy:.2} %  (without the margin; {inside:.2} % of samples are inside it)\n\
         angles    {:.1}° on average between a sample and its class, half from {:.1}° to {:.1}°",
        theta.mean, theta.p25, theta.p75,
    );
    for (sample, loss) in result.losses.iter().flatten().enumerate() {
        write!(text, "\nsample {sample}  {loss}")?;
    }
    Ok(text)
}

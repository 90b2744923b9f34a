//! The loss of arrays in files, for checking another implementation or for use from any language.

mod error;
mod inputs;

pub use error::LossError;
pub use inputs::{InputFiles, Inputs};

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::{Execution, MarginHead, Precision, Report};
use lsoftmax_kernels::Engine;
use serde::Serialize;

use lsoftmax_data::arrays::StagedArrays;
use lsoftmax_data::files::resolved;

use crate::head::{HeadKind, HeadMargin, HeadSettings};

/// How the loss is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSettings {
    /// The head.
    pub head: HeadSettings,
    /// λ.
    pub lambda: f64,
    /// The precision of matrix products.
    pub precision: Precision,
    /// Whether to report the loss of every sample.
    pub every_sample: bool,
}

/// The loss of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct LossResult {
    /// The mean over samples.
    pub loss: f64,
    /// The loss of every sample, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Vec<f32>>,
    /// The fraction of samples whose label has the largest logit, without the margin.
    pub accuracy: f64,
    /// The number of samples.
    pub samples: usize,
    /// The number of classes.
    pub classes: usize,
    /// The number of features per sample.
    pub features: usize,
    /// The head's name.
    pub head: HeadKind,
    /// The margin m.
    pub margin: HeadMargin,
    /// The scale s, where features are normalised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// λ.
    pub lambda: f64,
    /// The precision of matrix products.
    pub precision: Precision,
    /// The kernel path.
    pub kernel: &'static str,
    /// Angles, norms and margins.
    pub report: Report<HeadMargin>,
}

/// Gradients of the mean loss, row by row.
struct Gradients {
    features: Vec<f32>,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
}

/// Computes the loss of arrays in files, and writes its gradients to `gradient_directory` if given:
/// `features.npy`, `weights.npy` and, with a bias, `bias.npy`.
///
/// # Errors
/// When an input is invalid, or the gradients cannot be written.
pub fn run(
    files: &InputFiles,
    settings: &LossSettings,
    gradient_directory: Option<&Path>,
) -> Result<LossResult, LossError> {
    let inputs = Inputs::read(files)?;
    let Some(directory) = gradient_directory else {
        return Ok(compute(inputs, settings, &Device::flex())?.0);
    };
    check_directory(directory, files)?;
    let (samples, classes, features) = (inputs.samples(), inputs.classes(), inputs.depth());
    let (result, gradients) = compute(inputs, settings, &Device::flex().autodiff())?;
    let mut staged = StagedArrays::new(directory)?;
    if let Some(Gradients { features: x, weights: w, bias }) = gradients {
        check_gradient("features", features, &x)?;
        check_gradient("weights", features, &w)?;
        staged.add(FEATURES, &[samples, features], &x)?;
        staged.add(WEIGHTS, &[classes, features], &w)?;
        if let Some(b) = bias {
            check_gradient("bias", 1, &b)?;
            staged.add(BIAS, &[classes], &b)?;
        }
    }
    staged.commit()?;
    Ok(result)
}

const FEATURES: &str = "features.npy";
const WEIGHTS: &str = "weights.npy";
const BIAS: &str = "bias.npy";

/// Checks that `directory` is not a file and that no input would be overwritten.
fn check_directory(directory: &Path, files: &InputFiles) -> Result<(), LossError> {
    if directory.exists() && !directory.is_dir() {
        return Err(LossError::NotADirectory(directory.to_owned()));
    }
    let outputs = [FEATURES, WEIGHTS, BIAS].map(|name| resolved(directory).join(name));
    match files.all().find(|input| outputs.contains(&resolved(input))) {
        Some(input) => {
            Err(LossError::Overwrite { input: input.to_owned(), directory: directory.to_owned() })
        }
        None => Ok(()),
    }
}

/// Computes the loss and, on a device with autodiff, the gradients.
fn compute(
    inputs: Inputs,
    settings: &LossSettings,
    device: &Device,
) -> Result<(LossResult, Option<Gradients>), LossError> {
    let LossSettings { head: chosen, lambda, precision, every_sample } = *settings;
    let engine = Engine::new(precision)?;
    let kernel = engine.path().name();
    let (samples, classes, depth) = (inputs.samples(), inputs.classes(), inputs.depth());
    let with_gradients = device.is_autodiff();

    let weight = Param::from_data(TensorData::new(inputs.weights, [classes, depth]), device);
    let bias = inputs.bias.map(|bias| Param::from_data(TensorData::new(bias, [classes]), device));
    let head = MarginHead::from_weights(weight, bias, chosen.margin(), Execution::Fused(engine));
    let head = chosen.apply(head);
    let x = Tensor::<2>::from_data(TensorData::new(inputs.features, [samples, depth]), device);
    let x = if with_gradients { x.require_grad() } else { x };
    let y = Tensor::<1, Int>::from_data(TensorData::new(inputs.labels, [samples]), device);

    let out = head.forward(x.clone(), y, lambda)?;
    let report = out.report()?;
    let result = LossResult {
        loss: report.loss,
        losses: every_sample.then(|| out.losses.to_data().iter().collect()),
        accuracy: report.accuracy,
        samples,
        classes,
        features: depth,
        head: chosen.kind(),
        margin: chosen.margin(),
        scale: chosen.scale(),
        lambda,
        precision,
        kernel,
        report,
    };
    if !with_gradients {
        return Ok((result, None));
    }
    let mut found = out.loss.backward();
    let gradients = Gradients {
        features: gradient(&x, &mut found, "features")?,
        weights: gradient(&head.weight.val(), &mut found, "weights")?,
        bias: match &head.bias {
            Some(bias) => Some(gradient(&bias.val(), &mut found, "bias")?),
            None => None,
        },
    };
    Ok((result, Some(gradients)))
}

/// Removes a gradient from the store, which avoids a copy.
fn gradient<const D: usize>(
    tensor: &Tensor<D>,
    found: &mut burn::tensor::Gradients,
    of: &'static str,
) -> Result<Vec<f32>, LossError> {
    let gradient = tensor.grad_remove(found).map(|gradient| gradient.into_data().try_into_vec());
    gradient.and_then(Result::ok).ok_or(LossError::Untracked(of))
}

fn check_gradient(of: &'static str, columns: usize, values: &[f32]) -> Result<(), LossError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(index) => Err(LossError::Gradient {
            of,
            row: index / columns,
            column: index % columns,
            value: values[index],
        }),
    }
}

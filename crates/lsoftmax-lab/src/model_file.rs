//! The files of a trained model: weights as safetensors, and a description as JSON.
//!
//! The tensors are `units.0.weight` (filters x channels x height x width), `units.0.gamma`, `.beta`,
//! `.slope`, `.bias`, `.running_mean`, `.running_var`, and so on, then `head.weight` (classes x
//! features) and, if the head learns its scale s, `head.log_scale` (ln s). Nothing is executed on loading.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use burn::module::{Param, RunningState};
use burn::tensor::{Device, Tensor, TensorData};
use lsoftmax::{Execution, Precision};
use lsoftmax_comm::Communicator;
use lsoftmax_data::{DataSource, HoldOut, Mean, Shape, shell_word};
use lsoftmax_nn::{Network, NetworkConfig};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::head::HeadSettings;
use crate::model::Classifier;
use crate::run::{RECIPE, RunDirectory, RunError, read_json, write_atomic};

/// The description of a model: everything but its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDescription {
    /// The version of this file's format.
    pub version: u32,
    /// The name of the recipe that it was trained with.
    pub recipe: String,
    /// The data that it was trained on.
    pub data: DataSource,
    /// The seed of the run, by which the test images of a folder were chosen.
    pub seed: u64,
    /// The [digest](lsoftmax_data::Dataset::digest) of the images that it was trained on.
    pub digest: String,
    /// How images were held out of training; as before there was a choice if this is missing.
    #[serde(default)]
    pub hold_out: HoldOut,
    /// The SHA-256 of the file of the weights; set by [`write()`]. Older files lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights_sha256: Option<String>,
    /// The network.
    pub network: NetworkConfig,
    /// The names of the classes, one per class.
    pub class_names: Vec<String>,
    /// The number of classes.
    pub classes: usize,
    /// The head. Inference uses what it normalises, but not its margin; in older files the margin of
    /// L-Softmax.
    #[serde(alias = "margin")]
    pub head: HeadSettings,
    /// The precision that it was trained in.
    pub precision: Precision,
    /// The mean that is subtracted from images before they are divided by 256.
    pub mean: Mean,
}

impl ModelDescription {
    /// Reads the description of the model of a run.
    ///
    /// # Errors
    /// When the run is not finished, or the file is invalid or of another version.
    pub fn read(run: &Path) -> Result<Self, RunError> {
        Ok(read_files(run)?.0)
    }

    /// A model of this description with random weights, if its weights fit into `bytes` bytes.
    fn model(&self, bytes: usize, device: &Device) -> Result<Classifier, String> {
        let Self { network, classes, class_names, head, precision, .. } = self;
        let parameters = network.summary().map_err(|error| error.to_string())?.parameters;
        let weights = *classes as u128 * network.features.size as u128;
        if u128::from(parameters) + weights > bytes as u128 / 4 {
            return Err(format!(
                "describes more weights than {WEIGHTS} has; copy both files again"
            ));
        }
        if *classes == 0 || class_names.len() != *classes {
            let names = class_names.len();
            return Err(format!("has {classes} classes, but {names} class names; copy it again"));
        }
        let Mean { shape, pixels } = &self.mean;
        let [channels, height, width] = network.input;
        if *shape != (Shape { channels, height, width }) || pixels.len() != shape.pixels() {
            let count = pixels.len();
            return Err(format!(
                "has a mean image of {shape} with {count} pixels, but the network takes images of {channels} x {height} x {width}; copy it again"
            ));
        }
        if !pixels.iter().all(|pixel| pixel.is_finite()) {
            return Err("has a mean image that is not finite; copy it again".into());
        }
        let model = Classifier::new(network, *classes, *head, Execution::new(*precision), device);
        model.map_err(|error| error.to_string())
    }
}

/// The part that all versions of the description have in common.
#[derive(Deserialize)]
struct FormatVersion {
    version: u32,
}

/// The version of [`ModelDescription`] that this program writes and reads.
pub const VERSION: u32 = 2;
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const DESCRIPTION: &str = "model.json";
/// The last weights, beside the best.
pub(crate) const LAST_WEIGHTS: &str = "model.last.safetensors";

/// A trained model.
#[derive(Debug)]
pub struct TrainedModel {
    /// The model, on a device without autodiff.
    pub model: Classifier,
    /// Its description.
    pub description: ModelDescription,
}

impl TrainedModel {
    /// Reads the model of a run, for inference on a device (without autodiff).
    ///
    /// # Errors
    /// When a file is missing, invalid, or of another version.
    pub fn read(run: &Path, device: &Device) -> Result<Self, RunError> {
        let (description, bytes) = read_files(run)?;
        let model = description.model(bytes.len(), device);
        let model = model.map_err(|problem| RunError::damaged(&run.join(DESCRIPTION), problem))?;
        let (model, _) = load(model, &bytes, HeadOfFile::Required, device)
            .map_err(|problem| RunError::damaged(&run.join(WEIGHTS), problem))?;
        Ok(Self { model, description })
    }

    /// Sets the ranks that compute the outputs of images together.
    pub fn with_ranks(self, ranks: &Arc<dyn Communicator>) -> Self {
        let Classifier { network, head } = self.model;
        let model = Classifier { network: network.with_ranks(Arc::clone(ranks)), head };
        Self { model, ..self }
    }
}

/// The description of the model of a run and the contents of its file of weights, with its checksum checked.
pub(crate) fn read_files(run: &Path) -> Result<(ModelDescription, Vec<u8>), RunError> {
    let path = run.join(DESCRIPTION);
    if !path.is_file() {
        let missing = if run.join(RECIPE).is_file() {
            let problem = format!(
                "the run is not finished, it has no model.json; finish it with `lsoftmax train --resume {}`",
                shell_word(run)
            );
            return Err(RunError::damaged(run, problem));
        } else {
            DESCRIPTION
        };
        return Err(RunError::NoRun { path: run.to_owned(), missing });
    }
    let description = read_description(&path)?;
    let weights = run.join(WEIGHTS);
    let bytes = std::fs::read(&weights).map_err(RunError::io(&weights, "read"))?;
    if description.weights_sha256.as_ref().is_some_and(|sha256| *sha256 != sha256_of(&bytes)) {
        let problem = format!(
            "is not the file that {DESCRIPTION} describes: its SHA-256 differs; copy both files again"
        );
        return Err(RunError::damaged(&weights, problem));
    }
    Ok((description, bytes))
}

/// Reads a description of this version.
pub(crate) fn read_description(path: &Path) -> Result<ModelDescription, RunError> {
    let FormatVersion { version } = read_json(path)?;
    if version != VERSION {
        let problem = format!(
            "has format version {version}, but this program reads version {VERSION}; use the program that wrote it"
        );
        return Err(RunError::damaged(path, problem));
    }
    read_json(path)
}

/// Writes the model of a run. The description is written last, so that its presence means a complete
/// model.
///
/// # Errors
/// When a file cannot be written.
pub fn write(
    run: &RunDirectory,
    model: &Classifier,
    description: &ModelDescription,
) -> Result<(), RunError> {
    let weights = to_safetensors(model);
    run.write(WEIGHTS, &weights)?;
    let weights_sha256 = Some(sha256_of(&weights));
    run.write_json(DESCRIPTION, &ModelDescription { weights_sha256, ..description.clone() })
}

/// The SHA-256 of bytes, in hexadecimal.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the weights of a model to `path`, for use in plain layers; returns the number of bytes.
///
/// If the head normalises its weights, `head.weight` has rows of length 1. If it normalises features, too,
/// the file's metadata has `feature_length`, the scale s: the logits are those of a linear layer whose input
/// has been scaled to that length.
///
/// # Errors
/// When the file cannot be written.
pub fn export(model: &Classifier, path: &Path) -> Result<usize, RunError> {
    let mut plain = model.clone();
    plain.head.log_scale = None;
    plain.head = plain.head.with_linear(&model.head.to_linear()).expect("it has the same sizes");
    let scale = model.head.scale();
    let metadata = scale.map(|scale| ("feature_length".to_owned(), scale.to_string()));
    let bytes = with_metadata(&plain, metadata.into_iter().collect());
    write_atomic(path, &[&bytes])?;
    Ok(bytes.len())
}

/// The weights of a model as the contents of a safetensors file.
pub(crate) fn to_safetensors(model: &Classifier) -> Vec<u8> {
    with_metadata(model, HashMap::new())
}

fn with_metadata(model: &Classifier, metadata: HashMap<String, String>) -> Vec<u8> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    let added = each_tensor(&mut model.clone(), &mut |name, tensor| {
        let data = tensor.data();
        let shape = data.shape().iter().copied().collect();
        let bytes = data.iter::<f32>().flat_map(f32::to_le_bytes).collect();
        tensors.push((name, shape, bytes));
        Ok(())
    });
    added.expect("reading a tensor does not fail");
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.expect("the bytes are those of the shape"))
    });
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    safetensors::serialize(views, metadata).expect("names and shapes are plain")
}

/// What to do with the head of a file of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadOfFile {
    /// It must fit the model.
    Required,
    /// It is used if it fits the model.
    IfItFits,
    /// It is not used.
    Ignored,
}

/// The prefix of the names of the head's tensors.
const HEAD: &str = "head.";

/// Replaces the weights of a model by those of a safetensors file. Returns the model and whether the head's
/// are among them.
pub(crate) fn load(
    mut model: Classifier,
    bytes: &[u8],
    head: HeadOfFile,
    device: &Device,
) -> Result<(Classifier, bool), String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("is not a safetensors file ({error}); copy it again"))?;
    let mut found: HashMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let with_head = match head {
        HeadOfFile::Required => true,
        HeadOfFile::IfItFits => head_fits(&mut model, &found)?,
        HeadOfFile::Ignored => false,
    };
    if !with_head {
        found.retain(|name, _| !name.starts_with(HEAD));
    }
    each_tensor(&mut model, &mut |name, mut tensor| {
        if !with_head && name.starts_with(HEAD) {
            return Ok(());
        }
        let view = found.remove(&name).ok_or_else(|| format!("has no tensor `{name}`"))?;
        let shape = tensor.shape();
        if view.dtype() != Dtype::F32 || view.shape() != shape {
            let (found, dtype) = (view.shape(), view.dtype());
            return Err(format!(
                "`{name}` is {found:?} of {dtype:?}, but {shape:?} of F32 is expected"
            ));
        }
        let (numbers, _) = view.data().as_chunks::<4>();
        let values: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(format!(
                "`{name}` contains {value}, but weights must be finite; copy it again"
            ));
        }
        if name.ends_with("running_var") && values.iter().any(|value| *value < 0.0) {
            return Err(format!("`{name}` contains a negative variance; copy it again"));
        }
        tensor.set(TensorData::new(values, shape), device);
        Ok(())
    })?;
    match found.into_keys().next() {
        Some(name) => Err(format!("has a tensor `{name}` that the network does not have")),
        None => Ok((model, with_head)),
    }
}

/// Whether a file has a head of the same tensors, with the same shapes, as the model.
fn head_fits(
    model: &mut Classifier,
    found: &HashMap<String, TensorView<'_>>,
) -> Result<bool, String> {
    let (mut fits, mut expected) = (true, 0);
    each_tensor(model, &mut |name, tensor| {
        if name.starts_with(HEAD) {
            let shape = tensor.shape();
            fits = fits && found.get(&name).is_some_and(|view| view.shape() == shape);
            expected += 1;
        }
        Ok(())
    })?;
    Ok(fits && found.keys().filter(|name| name.starts_with(HEAD)).count() == expected)
}

/// A mutable reference to a tensor of a model.
pub(crate) enum Slot<'a> {
    Kernel(&'a mut Param<Tensor<4>>),
    Matrix(&'a mut Param<Tensor<2>>),
    Vector(&'a mut Param<Tensor<1>>),
    Running(&'a mut RunningState<Tensor<1>>),
}

impl Slot<'_> {
    /// Its values.
    pub fn data(&self) -> TensorData {
        match self {
            Self::Kernel(kernel) => kernel.val().into_data(),
            Self::Matrix(matrix) => matrix.val().into_data(),
            Self::Vector(vector) => vector.val().into_data(),
            Self::Running(state) => state.value().into_data(),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Kernel(kernel) => kernel.dims().into(),
            Self::Matrix(matrix) => matrix.dims().into(),
            Self::Vector(vector) => vector.dims().into(),
            Self::Running(state) => state.value().dims().into(),
        }
    }

    /// Replaces it.
    pub fn set(&mut self, data: TensorData, device: &Device) {
        match self {
            Self::Kernel(kernel) => **kernel = Param::from_tensor(Tensor::from_data(data, device)),
            Self::Matrix(matrix) => **matrix = Param::from_tensor(Tensor::from_data(data, device)),
            Self::Vector(vector) => **vector = Param::from_tensor(Tensor::from_data(data, device)),
            Self::Running(state) => **state = RunningState::new(Tensor::from_data(data, device)),
        }
    }
}

/// Calls `visit` with the name of every tensor of a model and the tensor; used for reading and writing.
pub(crate) fn each_tensor(
    model: &mut Classifier,
    visit: &mut dyn FnMut(String, Slot<'_>) -> Result<(), String>,
) -> Result<(), String> {
    each_network_tensor(&mut model.network, visit)?;
    visit("head.weight".into(), Slot::Matrix(&mut model.head.weight))?;
    let vectors = [("bias", &mut model.head.bias), ("log_scale", &mut model.head.log_scale)];
    for (name, vector) in vectors {
        if let Some(vector) = vector {
            visit(format!("head.{name}"), Slot::Vector(vector))?;
        }
    }
    Ok(())
}

/// As [`each_tensor`], without the head.
pub(crate) fn each_network_tensor(
    network: &mut Network,
    visit: &mut dyn FnMut(String, Slot<'_>) -> Result<(), String>,
) -> Result<(), String> {
    for (index, unit) in network.units.iter_mut().enumerate() {
        let name = |name: &str| format!("units.{index}.{name}");
        visit(name("weight"), Slot::Kernel(&mut unit.weight))?;
        let vectors = [
            ("bias", &mut unit.bias),
            ("gamma", &mut unit.gamma),
            ("beta", &mut unit.beta),
            ("slope", &mut unit.slope),
        ];
        for (vector_name, vector) in vectors {
            if let Some(vector) = vector {
                visit(name(vector_name), Slot::Vector(vector))?;
            }
        }
        let running =
            [("running_mean", &mut unit.running_mean), ("running_var", &mut unit.running_var)];
        for (state_name, state) in running {
            if let Some(state) = state {
                visit(name(state_name), Slot::Running(state))?;
            }
        }
    }
    Ok(())
}

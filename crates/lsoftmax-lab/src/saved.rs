//! A trained model in files: weights as safetensors, and what they are as JSON.
//!
//! The names are `units.0.weight` (filters x channels x height x width), `units.0.gamma`, `.beta`,
//! `.slope`, `.bias`, `.running_mean`, `.running_var`, and so on, then `head.weight` (classes x
//! features). Nothing is executed on loading.

use std::collections::HashMap;
use std::path::Path;

use burn::module::{Param, RunningState};
use burn::tensor::{Device, Tensor, TensorData};
use lsoftmax::{Margin, Precision};
use lsoftmax_nn::NetworkConfig;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::data::Mean;
use crate::model::Classifier;
use crate::run::{RunDirectory, RunError, read_json, write_whole};

/// What a model is, beside its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The version of this file's form.
    pub version: u32,
    /// The recipe that it was trained by.
    pub recipe: String,
    /// The data that it was trained on.
    pub data: String,
    /// The seed of the run, by which the test images of a folder were chosen.
    pub seed: u64,
    /// Of the images that it was trained on, see [`Dataset::digest`](crate::data::Dataset::digest).
    pub digest: String,
    /// The network.
    pub network: NetworkConfig,
    /// The classes' names, where they are known.
    pub class_names: Option<Vec<String>>,
    /// How many there are.
    pub classes: usize,
    /// The margin that it was trained with; inference has none.
    pub margin: Margin,
    /// The precision that it was trained in.
    pub precision: Precision,
    /// What is subtracted from images, before they are divided by 256.
    pub mean: Mean,
}

impl Description {
    /// A model of this description, its weights still random, if so many bytes can hold them.
    fn model(&self, bytes: usize) -> Result<Classifier, String> {
        let Self { network, classes, class_names, margin, precision, .. } = self;
        let parameters = network.summary().map_err(|error| error.to_string())?.parameters;
        let head = *classes as u128 * network.features.size as u128;
        if u128::from(parameters) + head > bytes as u128 / 4 {
            return Err(format!("describes more weights than {WEIGHTS} holds; copy both again"));
        }
        if *classes == 0 || class_names.as_ref().is_some_and(|names| names.len() != *classes) {
            return Err(format!("has {classes} classes, but not a name for each; copy it again"));
        }
        let model = Classifier::new(network, *classes, *margin, *precision, &Device::flex());
        model.map_err(|error| error.to_string())
    }
}

/// What all forms of a description have.
#[derive(Deserialize)]
struct Form {
    version: u32,
}

/// The form of [`Description`] that this program writes and reads.
pub const VERSION: u32 = 2;
const WEIGHTS: &str = "model.safetensors";
const DESCRIPTION: &str = "model.json";

/// A model that was trained.
#[derive(Debug)]
pub struct Saved {
    /// The model, on the plain CPU device: it infers.
    pub model: Classifier,
    /// What it is.
    pub description: Description,
}

impl Saved {
    /// Reads the model of a run.
    ///
    /// # Errors
    /// When a file is missing, damaged, or of another form.
    pub fn read(run: &Path) -> Result<Self, RunError> {
        let path = run.join(DESCRIPTION);
        if !path.is_file() {
            let missing = if run.join("recipe.toml").is_file() {
                return Err(RunError::damaged(
                    run,
                    "the run is not done: there is no model.json in it; go on with `lsoftmax train --resume`",
                ));
            } else {
                DESCRIPTION
            };
            return Err(RunError::NoRun { path: run.to_owned(), missing });
        }
        let Form { version } = read_json(&path)?;
        if version != VERSION {
            let problem = format!(
                "is of form {version}, but this program reads form {VERSION}: use the program that wrote it"
            );
            return Err(RunError::damaged(&path, problem));
        }
        let description: Description = read_json(&path)?;
        let weights = run.join(WEIGHTS);
        let bytes = std::fs::read(&weights).map_err(RunError::io(&weights, "read"))?;
        let model = description.model(bytes.len());
        let model = model.map_err(|problem| RunError::damaged(&path, problem))?;
        let model = load(model, &bytes).map_err(|problem| RunError::damaged(&weights, problem))?;
        Ok(Self { model, description })
    }
}

/// Writes the model of a run. The description comes last: a directory that has it has a model.
///
/// # Errors
/// When the system refuses.
pub fn write(
    run: &RunDirectory,
    model: &Classifier,
    description: &Description,
) -> Result<(), RunError> {
    run.write(WEIGHTS, &to_safetensors(model))?;
    run.write_json(DESCRIPTION, description)
}

/// Writes a model's weights to a file of the user's; so many bytes.
///
/// # Errors
/// When the system refuses.
pub fn export(model: &Classifier, path: &Path) -> Result<usize, RunError> {
    let bytes = to_safetensors(model);
    write_whole(path, &[&bytes])?;
    Ok(bytes.len())
}

/// The weights of a model as the contents of a safetensors file.
pub fn to_safetensors(model: &Classifier) -> Vec<u8> {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tensors(model)
        .into_iter()
        .map(|(name, data)| {
            let shape = data.shape().iter().copied().collect();
            let bytes = data.iter::<f32>().flat_map(f32::to_le_bytes).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name.as_str(), view.expect("the bytes are those of the shape"))
    });
    safetensors::serialize(views, None).expect("names and shapes are plain")
}

/// Every tensor of a model, by name.
fn tensors(model: &Classifier) -> Vec<(String, TensorData)> {
    let mut found = Vec::new();
    for (index, unit) in model.network.units.iter().enumerate() {
        let mut add = |name: &str, data: TensorData| {
            found.push((format!("units.{index}.{name}"), data));
        };
        add("weight", unit.weight.val().into_data());
        let vectors = [
            ("bias", &unit.bias),
            ("gamma", &unit.gamma),
            ("beta", &unit.beta),
            ("slope", &unit.slope),
        ];
        for (name, vector) in vectors {
            vector.iter().for_each(|vector| add(name, vector.val().into_data()));
        }
        let running = [("running_mean", &unit.running_mean), ("running_var", &unit.running_var)];
        for (name, state) in running {
            state.iter().for_each(|state| add(name, state.value().into_data()));
        }
    }
    found.push(("head.weight".into(), model.head.weight.val().into_data()));
    if let Some(bias) = &model.head.bias {
        found.push(("head.bias".into(), bias.val().into_data()));
    }
    found
}

/// Fills a model of the right shape.
fn load(mut model: Classifier, bytes: &[u8]) -> Result<Classifier, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("is not a safetensors file ({error}); copy it again"))?;
    let mut found: HashMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let mut take = |name: String, shape: &[usize]| -> Result<TensorData, String> {
        let view = found.remove(&name).ok_or_else(|| format!("has no tensor `{name}`"))?;
        if view.dtype() != Dtype::F32 || view.shape() != shape {
            let (found, dtype) = (view.shape(), view.dtype());
            return Err(format!(
                "`{name}` is {found:?} of {dtype:?}, but {shape:?} of F32 is wanted"
            ));
        }
        let (numbers, _) = view.data().as_chunks::<4>();
        let values: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Ok(TensorData::new(values, shape.to_vec()))
    };
    let device = Device::flex();
    for (index, unit) in model.network.units.iter_mut().enumerate() {
        let name = |name: &str| format!("units.{index}.{name}");
        let shape = unit.weight.dims();
        let weight = take(name("weight"), &shape)?;
        unit.weight = Param::from_tensor(Tensor::from_data(weight, &device));
        let vectors = [
            ("bias", &mut unit.bias),
            ("gamma", &mut unit.gamma),
            ("beta", &mut unit.beta),
            ("slope", &mut unit.slope),
        ];
        for (vector_name, vector) in vectors {
            if let Some(vector) = vector {
                let data = take(name(vector_name), &shape[..1])?;
                *vector = Param::from_tensor(Tensor::from_data(data, &device));
            }
        }
        let running =
            [("running_mean", &mut unit.running_mean), ("running_var", &mut unit.running_var)];
        for (state_name, state) in running {
            if let Some(state) = state {
                let data = take(name(state_name), &shape[..1])?;
                *state = RunningState::new(Tensor::from_data(data, &device));
            }
        }
    }
    let shape = model.head.weight.dims();
    let weight = take("head.weight".into(), &shape)?;
    model.head.weight = Param::from_tensor(Tensor::from_data(weight, &device));
    if let Some(bias) = &mut model.head.bias {
        let data = take("head.bias".into(), &shape[..1])?;
        *bias = Param::from_tensor(Tensor::from_data(data, &device));
    }
    match found.into_keys().next() {
        Some(name) => Err(format!("has a tensor `{name}` that the network does not have")),
        None => Ok(model),
    }
}

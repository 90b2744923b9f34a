//! Using a trained model: evaluation, prediction, features, export.

use std::path::{Path, PathBuf};

use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax_data::arrays::{StagedArrays, WriteError};
use lsoftmax_data::files::directory_of;
use lsoftmax_data::{
    DataDir, DataError, DataSource, Dataset, Images, ImagesError, Shape, Split, files_in,
    read_images,
};
use serde::Serialize;

use crate::evaluate::{
    EvaluateError, Evaluation, best, degrees, each, evaluate, norm, weight_norms,
};
use crate::model_file::{self, TrainedModel};
use crate::run::RunError;

/// Why a model could not be used.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// Its files.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The images.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The images and the model's classes do not fit.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// The model and the images do not fit.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The result cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The arguments do not fit the model.
    #[error("{0}")]
    Fit(String),
}

impl InferenceError {
    /// Whether other arguments or data would help; else the machine failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Write(_) => false,
            _ => true,
        }
    }
}

/// What `evaluate_run` found.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluated {
    /// The data.
    pub data: DataSource,
    /// Which part of it.
    pub split: &'static str,
    /// How well the model does on it.
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

/// The images of a split, or an error that names the data.
fn images_of(set: Dataset, split: Split) -> Result<Images, InferenceError> {
    let name = set.name.clone();
    set.split(split).ok_or_else(|| {
        InferenceError::Fit(format!("{name} has no test images; ask for --split train"))
    })
}

/// Evaluates the model of a run on a set, its own unless another is named. Classes go by their names.
///
/// # Errors
/// When the model or the images cannot be read, or do not fit.
pub fn evaluate_run(
    run: &Path,
    source: Option<&DataSource>,
    split: Split,
    data: &DataDir,
    device: &Device,
) -> Result<Evaluated, InferenceError> {
    let TrainedModel { model, description } = TrainedModel::read(run, device)?;
    let own = source.is_none();
    let source = source.unwrap_or(&description.data);
    let mut set = source.read(data, shape(&description.network.input))?;
    if own && set.test.is_none() {
        if set.digest() != description.digest {
            return Err(InferenceError::Fit(format!(
                "the images of {source} have changed since the run, so that those kept for the test cannot be told from the others: name images with --data"
            )));
        }
        set = set.with_test(description.seed)?;
    }
    if let Some(names) = &description.class_names {
        set = set.numbered_as(names)?;
    }
    if set.classes > description.classes {
        return Err(InferenceError::Fit(format!(
            "{source} has {} classes, but the model knows {}",
            set.classes, description.classes
        )));
    }
    // A folder that was named is all for this, unless it is divided.
    let (split, images) = match split {
        Split::Test if !own && set.test.is_none() => ("all", set.train),
        _ => (split.name(), images_of(set, split)?),
    };
    let evaluation = evaluate(&model, &Arc::new(images), &description.mean)?;
    Ok(Evaluated { data: source.clone(), split, evaluation })
}

/// What a model says of an image.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The file.
    pub image: String,
    /// The class's number.
    pub class: usize,
    /// Its name, where it is known.
    pub name: Option<String>,
    /// The softmax probability.
    pub probability: f64,
    /// The angle between the feature and the class, in degrees.
    pub angle: f64,
}

/// Asks the model of a run for the classes of image files.
///
/// # Errors
/// When the model or an image cannot be read.
pub fn predict(
    run: &Path,
    files: &[PathBuf],
    device: &Device,
) -> Result<Vec<Prediction>, InferenceError> {
    let TrainedModel { model, description } = TrainedModel::read(run, device)?;
    if let Some(directory) = files.iter().find(|path| path.is_dir()) {
        let directory = directory.display();
        return Err(InferenceError::Fit(format!(
            "{directory}: this is a directory; name the images in it"
        )));
    }
    let images = Arc::new(read_images(files, shape(&description.network.input))?);
    let norms = weight_norms(&model);
    let mut files = files.iter();
    let mut predictions = Vec::new();
    each(&model, &images, &description.mean, |outcome| {
        let logits = &outcome.logits;
        let class = best(logits);
        let largest = f64::from(logits[class]);
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum();
        let lengths = norm(&outcome.features) * norms[class];
        let file = files.next().expect("one outcome a file");
        predictions.push(Prediction {
            image: file.display().to_string(),
            class,
            name: description.class_names.as_ref().and_then(|names| names.get(class).cloned()),
            probability: 1.0 / sum,
            angle: degrees(largest, lengths),
        });
    })?;
    Ok(predictions)
}

/// What `embed` wrote.
#[derive(Clone, Debug, Serialize)]
pub struct Embedded {
    /// The file.
    pub out: String,
    /// Rows.
    pub images: usize,
    /// Columns.
    pub features: usize,
    /// The file of the logits, if they were asked for.
    pub logits: Option<String>,
    /// Its columns.
    pub classes: usize,
    /// Whether every row of features has a length of 1.
    pub normalised: bool,
}

/// Where the results of [`embed`] go.
#[derive(Clone, Copy, Debug)]
pub struct EmbedOutputs<'a> {
    /// The file of the features.
    pub features: &'a Path,
    /// The file of the logits, if they are wanted.
    pub logits: Option<&'a Path>,
    /// Whether features are scaled to a length of 1.
    pub normalise: bool,
}

/// Writes the features of images to a .npy file, and their logits to another if that is asked for; one
/// row per image.
///
/// `input` is a set (its `split`), an image file, or a directory of images, whose files
/// are taken in the order of their paths. The logits W·x are of the features as they are, not of
/// normalised ones.
///
/// # Errors
/// When the model or the images cannot be read, or the file cannot be written.
pub fn embed(
    run: &Path,
    input: &DataSource,
    split: Split,
    data: &DataDir,
    outputs: &EmbedOutputs<'_>,
    device: &Device,
) -> Result<Embedded, InferenceError> {
    let EmbedOutputs { features: out, logits, normalise } = *outputs;
    if logits.is_some_and(|logits| canonical(logits) == canonical(out)) {
        let problem = format!("{} cannot hold both features and logits", out.display());
        return Err(InferenceError::Fit(problem));
    }
    let TrainedModel { model, description } = TrainedModel::read(run, device)?;
    let images = match input {
        DataSource::Set(set) => images_of(set.read(data)?, split)?,
        DataSource::Folder(path) => {
            let files = if path.is_dir() { files_in(path)? } else { vec![path.clone()] };
            read_images(&files, shape(&description.network.input))?
        }
    };
    let images = Arc::new(images);
    let (width, classes) = (description.network.features.size, description.classes);
    let mut rows = Vec::with_capacity(images.len() * width);
    let mut scores = Vec::new();
    each(&model, &images, &description.mean, |outcome| {
        let length = norm(&outcome.features);
        let scale = if normalise && length > 0.0 { 1.0 / length } else { 1.0 };
        rows.extend(outcome.features.iter().map(|value| (f64::from(*value) * scale) as f32));
        if logits.is_some() {
            scores.extend_from_slice(&outcome.logits);
        }
    })?;
    let features = stage(out, &[images.len(), width], &rows)?;
    if let Some(logits) = logits {
        stage(logits, &[images.len(), classes], &scores)?.commit()?;
    }
    features.commit()?;
    Ok(Embedded {
        out: out.display().to_string(),
        images: images.len(),
        features: width,
        logits: logits.map(|logits| logits.display().to_string()),
        classes,
        normalised: normalise,
    })
}

/// The path of a file, however it is written.
fn canonical(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (whole.parent().and_then(|parent| parent.canonicalize().ok()), whole.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => whole,
    }
}

/// An array written, but for its name.
fn stage(path: &Path, shape: &[usize], values: &[f32]) -> Result<StagedArrays, InferenceError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| InferenceError::Fit(format!("{} names no file", path.display())))?;
    let mut staged = StagedArrays::new(directory_of(path))?;
    staged.add(name, shape, values)?;
    Ok(staged)
}

/// Writes the weights of a run's model to a safetensors file.
///
/// # Errors
/// When the model cannot be read, or the file cannot be written.
pub fn export(run: &Path, out: &Path) -> Result<usize, InferenceError> {
    let TrainedModel { model, .. } = TrainedModel::read(run, &Device::flex())?;
    Ok(model_file::export(&model, out)?)
}

fn shape(&[channels, height, width]: &[usize; 3]) -> Shape {
    Shape { channels, height, width }
}

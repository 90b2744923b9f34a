//! Using a trained model: prediction, features, export.

use std::path::{Path, PathBuf};

use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax_comm::Communicator;
use lsoftmax_data::arrays::{StagedArrays, WriteError};
use lsoftmax_data::files::{directory_of, resolved};
use lsoftmax_data::{
    DataDir, DataError, DataProblem, DataSource, Dataset, Images, ImagesError, Shape, Split,
    WatchReading, files_in, read_images, read_readable_images,
};
use serde::Serialize;

use crate::evaluate::{EvaluateError, LogitLengths, argmax, for_each_image, norm, scaled_sum_exp};
use crate::features::Flip;
use crate::model_file::{self, ModelDescription, TrainedModel};
use crate::onnx::{OnnxOutput, to_onnx};
use crate::run::{RunError, write_atomic};

/// Why a model could not be used.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// The files of the run are missing or invalid.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The images could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The classes of the images do not fit the model.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// The images do not fit the model.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The result could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The arguments do not fit the model.
    #[error("{0}")]
    Fit(String),
}

impl InferenceError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Write(_) => false,
            _ => true,
        }
    }

    /// Whether a watcher stopped the work.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Data(error) => matches!(error.problem, DataProblem::Interrupted),
            Self::Evaluate(error) => matches!(error, EvaluateError::Interrupted),
            _ => false,
        }
    }
}

/// The images of a split, or an error that names the data.
fn images_of(set: Dataset, split: Split) -> Result<Images, InferenceError> {
    let name = set.name.clone();
    set.split(split)
        .ok_or_else(|| InferenceError::Fit(format!("{name} has no test images; use --split train")))
}

/// The images on which a model is evaluated, numbered as its classes are, and the name of the split. Without
/// a source they are the model's own.
pub(crate) fn images_to_evaluate(
    description: &ModelDescription,
    source: Option<&DataSource>,
    split: Split,
    data: &DataDir,
    watch: &mut WatchReading<'_>,
) -> Result<(&'static str, Images), InferenceError> {
    let own = source.is_none();
    let source = source.unwrap_or(&description.data);
    let mut set = source.read_watched(data, input_shape(&description.network.input), watch)?;
    if own && set.test.is_none() {
        if set.digest() != description.digest {
            return Err(InferenceError::Fit(format!(
                "the images of {source} have changed since the run, so its test images cannot be identified; give a data set with --data"
            )));
        }
        set = set.with_test(description.hold_out, description.seed)?;
    }
    let set = set.numbered_as(&description.class_names)?;
    // All images of an explicitly given folder are test images, unless it has a test folder.
    Ok(match split {
        Split::Test if !own && set.test.is_none() => ("all", set.train),
        _ => (split.name(), images_of(set, split)?),
    })
}

/// The predicted class of an image.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The file.
    pub image: String,
    /// The index of the class.
    pub class: usize,
    /// The name of the class.
    pub name: String,
    /// The softmax probability.
    pub probability: f64,
    /// The angle between the features and the class weights, in degrees.
    pub angle: f64,
}

/// The result of [`predict`].
#[derive(Debug)]
pub struct Predictions {
    /// The images that could be read, in the order given.
    pub images: Vec<Prediction>,
    /// What is wrong with the others.
    pub unreadable: Vec<DataError>,
}

/// Image files are read and predicted in groups of this size, which bounds the memory.
const GROUP: usize = 4096;

/// Predicts the classes of image files with the model of a run. A directory stands for all files in it, and
/// `-` for the standard input. Images that cannot be read are left out and reported.
///
/// # Errors
/// When the model or a directory cannot be read, or there are no images.
pub fn predict(
    run: &Path,
    inputs: &[PathBuf],
    device: &Device,
) -> Result<Predictions, InferenceError> {
    let trained = TrainedModel::read(run, device)?;
    let files = files_of(inputs)?;
    let mut found = Predictions { images: Vec::new(), unreadable: Vec::new() };
    for group in files.chunks(GROUP) {
        let shape = input_shape(&trained.description.network.input);
        let (images, unreadable) = read_readable_images(group, shape)?;
        found.unreadable.extend(unreadable);
        predict_images(&trained, images, &mut found.images)?;
    }
    if let Some(prediction) = found.images.iter().find(|found| !found.probability.is_finite()) {
        return Err(InferenceError::Fit(format!(
            "{}: the model's output for this image is not finite; its weights are damaged, copy them again",
            prediction.image
        )));
    }
    Ok(found)
}

/// The files given, and those in the directories given.
fn files_of(inputs: &[PathBuf]) -> Result<Vec<PathBuf>, InferenceError> {
    let mut files = Vec::new();
    for input in inputs {
        if input.is_dir() { files.extend(files_in(input)?) } else { files.push(input.clone()) }
    }
    if files.is_empty() {
        let names: Vec<_> = inputs.iter().map(|input| input.display().to_string()).collect();
        return Err(InferenceError::Fit(format!("{}: there are no images", names.join(", "))));
    }
    Ok(files)
}

fn predict_images(
    TrainedModel { model, description }: &TrainedModel,
    images: Images,
    predictions: &mut Vec<Prediction>,
) -> Result<(), InferenceError> {
    if images.is_empty() {
        return Ok(());
    }
    let images = Arc::new(images);
    let lengths = LogitLengths::of(model);
    let mut index = 0;
    for_each_image(model, &images, &description.mean, |outcome| {
        let logits = &outcome.logits;
        let class = argmax(logits);
        let (_, sum) = scaled_sum_exp(logits);
        let file = images.file(index).expect("they are files");
        index += 1;
        predictions.push(Prediction {
            image: file.display().to_string(),
            class,
            name: description.class_names[class].clone(),
            probability: 1.0 / sum,
            angle: lengths.degrees(&outcome.features, class, logits[class]),
        });
    })?;
    Ok(())
}

/// The result of [`embed`].
#[derive(Clone, Debug, Serialize)]
pub struct EmbedReport {
    /// The file of the features.
    pub out: String,
    /// The number of rows.
    pub images: usize,
    /// The number of columns of the features.
    pub features: usize,
    /// The file of the logits, if requested.
    pub logits: Option<String>,
    /// The number of columns of the logits.
    pub classes: usize,
    /// Whether every row of features is normalised to length 1.
    pub normalised: bool,
    /// The file of the names and labels of the rows.
    pub rows: String,
}

/// The file beside the arrays that says what their rows are.
#[derive(Clone, Debug, Serialize)]
struct EmbeddedRows {
    /// The file of every image, or the part of a data set and its index in it.
    names: Vec<String>,
    /// The class of every image: that of a data set, or the directory that a file is in, below the directory
    /// given; null if there is none.
    labels: Vec<Option<String>>,
}

impl EmbeddedRows {
    /// Whether a file has the names and labels of rows.
    fn are_in(path: &Path) -> bool {
        let text = std::fs::read(path).unwrap_or_default();
        let found: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
        found.is_some_and(|found| ["names", "labels"].iter().all(|key| found[key].is_array()))
    }

    /// The rows of a data set.
    fn of_set(split: Split, images: &Images, class_names: &[String]) -> Self {
        let label = |label: &u32| class_names.get(*label as usize).cloned();
        Self {
            names: (0..images.len()).map(|index| format!("{}/{index}", split.name())).collect(),
            labels: images.labels().iter().map(label).collect(),
        }
    }

    /// The rows of files in a directory, or of a file.
    fn of_files(files: &[PathBuf], directory: &Path) -> Self {
        let label = |file: &PathBuf| {
            let below = file.strip_prefix(directory).ok()?.parent()?;
            below.file_name().map(|name| name.to_string_lossy().into_owned())
        };
        Self {
            names: files.iter().map(|file| file.display().to_string()).collect(),
            labels: files.iter().map(label).collect(),
        }
    }
}

/// The output files of [`embed`].
#[derive(Clone, Copy, Debug)]
pub struct EmbedOutputs<'a> {
    /// The file of the features.
    pub features: &'a Path,
    /// The file of the logits, if requested.
    pub logits: Option<&'a Path>,
    /// Whether to normalise features to length 1.
    pub normalise: bool,
    /// Whether the features of the mirror image are added, or follow.
    pub flip: Option<Flip>,
}

/// Writes the features of images to an `.npy` file, and their logits to another if requested; one row
/// per image. A `.json` file beside it has the names and labels of the rows.
///
/// `input` is a set (its `split`), an image file, or a directory of images in path order. The logits
/// are those of the head, whatever `normalise` says.
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
    ranks: &Arc<dyn Communicator>,
) -> Result<EmbedReport, InferenceError> {
    let EmbedOutputs { features: out, logits, normalise, flip } = *outputs;
    if logits.is_some_and(|logits| resolved(logits) == resolved(out)) {
        let problem = format!(
            "{} cannot be the file of both features and logits; use two files",
            out.display()
        );
        return Err(InferenceError::Fit(problem));
    }
    let names = out.with_extension("json");
    if [Some(out), logits].into_iter().flatten().any(|file| resolved(file) == resolved(&names)) {
        let problem = format!(
            "{} is where the names and labels of the rows are written; give the arrays names that end in .npy",
            names.display()
        );
        return Err(InferenceError::Fit(problem));
    }
    if names.exists() && !EmbeddedRows::are_in(&names) {
        let problem = format!(
            "{} exists and is not of an earlier `embed`, but the names and labels of the rows are written there; give the features another name",
            names.display()
        );
        return Err(InferenceError::Fit(problem));
    }
    let trained = TrainedModel::read(run, device)?.with_ranks(ranks);
    let TrainedModel { model, description } = trained;
    let (images, named) = match input {
        DataSource::Set(set) => {
            let set = set.read(data)?;
            let class_names = set.class_names.clone();
            let images = images_of(set, split)?;
            let named = EmbeddedRows::of_set(split, &images, &class_names);
            (images, named)
        }
        DataSource::Folder(path) => {
            let files = files_of(std::slice::from_ref(path))?;
            let images = read_images(&files, input_shape(&description.network.input))?;
            (images, EmbeddedRows::of_files(&files, path))
        }
    };
    let images = Arc::new(images);
    let (mut width, classes) = (description.network.features.size, description.classes);
    let mut rows = Vec::with_capacity(images.len() * width);
    let mut scores = Vec::new();
    for_each_image(&model, &images, &description.mean, |outcome| {
        rows.extend_from_slice(&outcome.features);
        if logits.is_some() {
            scores.extend_from_slice(&outcome.logits);
        }
    })?;
    if let Some(flip) = flip {
        let mut mirrored = Vec::with_capacity(rows.len());
        for_each_image(&model, &Arc::new(images.mirrored()), &description.mean, |outcome| {
            mirrored.extend_from_slice(&outcome.features);
        })?;
        (width, rows) = flip.joined(width, &rows, &mirrored);
    }
    if normalise {
        for row in rows.chunks_exact_mut(width) {
            let length = norm(row);
            let scale = if length > 0.0 { 1.0 / length } else { 1.0 };
            row.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
        }
    }
    if ranks.is_first() {
        let features = stage(out, &[images.len(), width], &rows)?;
        if let Some(logits) = logits {
            stage(logits, &[images.len(), classes], &scores)?.commit()?;
        }
        let named = serde_json::to_string(&named).expect("strings become JSON");
        write_atomic(&names, &[named.as_bytes(), b"\n"])?;
        features.commit()?;
    }
    Ok(EmbedReport {
        out: out.display().to_string(),
        images: images.len(),
        features: width,
        logits: logits.map(|logits| logits.display().to_string()),
        classes,
        normalised: normalise,
        rows: names.display().to_string(),
    })
}

/// Writes an array to a temporary file, to be renamed to `path` on commit.
fn stage(path: &Path, shape: &[usize], values: &[f32]) -> Result<StagedArrays, InferenceError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| InferenceError::Fit(format!("{} has no file name", path.display())))?;
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

/// Writes the model of a run as an ONNX file; returns the number of bytes.
///
/// # Errors
/// When the model cannot be read or is too large, or the file cannot be written.
pub fn export_onnx(run: &Path, output: OnnxOutput, out: &Path) -> Result<usize, InferenceError> {
    let model = TrainedModel::read(run, &Device::flex())?;
    let bytes = to_onnx(&model, output).map_err(|error| InferenceError::Fit(error.to_string()))?;
    write_atomic(out, &[&bytes])?;
    Ok(bytes.len())
}

/// The size of the images that a network takes.
pub(crate) fn input_shape(&[channels, height, width]: &[usize; 3]) -> Shape {
    Shape { channels, height, width }
}

//! A trained model put to use: evaluated, asked for classes, asked for features.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::arrays::{StagedArrays, WriteError};
use crate::data::{
    DataDir, DataError, Dataset, Images, ImagesError, Set, Shape, files_in, read_folder,
    read_images,
};
use crate::evaluate::{
    EvaluateError, Evaluation, best, degrees, each, evaluate, norm, weight_norms,
};
use crate::files::directory_of;
use crate::run::RunError;
use crate::saved::{self, Saved};

/// Why a model could not be used.
#[derive(Debug, thiserror::Error)]
pub enum UseError {
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

impl UseError {
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
    pub data: String,
    /// Which part of it.
    pub split: &'static str,
    /// How well the model does on it.
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

/// Which images of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Those to train on, held-out ones included.
    Train,
    /// Those to test on.
    Test,
}

impl Split {
    fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Test => "test",
        }
    }

    fn of(self, set: Dataset) -> Result<Images, UseError> {
        let name = set.name;
        match self {
            Split::Train => Ok(set.train),
            Split::Test => set.test.ok_or_else(|| {
                UseError::Fit(format!("{name} has no test images; ask for --split train"))
            }),
        }
    }
}

/// Evaluates the model of a run on a set, its own unless another is named. Classes go by their names.
///
/// # Errors
/// When the model or the images cannot be read, or do not fit.
pub fn evaluate_run(
    run: &Path,
    name: Option<&str>,
    split: Split,
    data: &DataDir,
) -> Result<Evaluated, UseError> {
    let Saved { model, description } = Saved::read(run)?;
    let own = name.is_none();
    let name = name.unwrap_or(&description.data);
    let mut set = match Set::named(name) {
        Some(set) => set.read(data)?,
        None => read_folder(name, shape(&description.network.input))?,
    };
    if own && set.test.is_none() {
        if set.digest() != description.digest {
            return Err(UseError::Fit(format!(
                "the images of {name} have changed since the run, so that those kept for the test cannot be told from the others: name images with --data"
            )));
        }
        set = set.with_test(description.seed)?;
    }
    if let Some(names) = &description.class_names {
        set = set.numbered_as(names)?;
    }
    if set.classes > description.classes {
        return Err(UseError::Fit(format!(
            "{name} has {} classes, but the model knows {}",
            set.classes, description.classes
        )));
    }
    // A folder that was named is all for this, unless it is divided.
    let (split, images) = match split {
        Split::Test if !own && set.test.is_none() => ("all", set.train),
        _ => (split.name(), split.of(set)?),
    };
    let evaluation = evaluate(&model, &images, &description.mean)?;
    Ok(Evaluated { data: name.to_owned(), split, evaluation })
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
pub fn predict(run: &Path, files: &[PathBuf]) -> Result<Vec<Prediction>, UseError> {
    let Saved { model, description } = Saved::read(run)?;
    if let Some(directory) = files.iter().find(|path| path.is_dir()) {
        let directory = directory.display();
        return Err(UseError::Fit(format!(
            "{directory}: this is a directory; name the images in it"
        )));
    }
    let images = read_images(files, shape(&description.network.input))?;
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

/// Writes the features of images to a .npy file, and their logits to another if that is asked for; one
/// row an image.
///
/// `input` is the name of a set (its `split`), an image file, or a directory of images, whose files
/// are taken in the order of their paths. The logits W·x are of the features as they are, not of
/// normalised ones.
///
/// # Errors
/// When the model or the images cannot be read, or the file cannot be written.
pub fn embed(
    run: &Path,
    input: &str,
    split: Split,
    data: &DataDir,
    out: &Path,
    logits: Option<&Path>,
    normalised: bool,
) -> Result<Embedded, UseError> {
    if logits.is_some_and(|logits| place(logits) == place(out)) {
        let problem = format!("{} cannot hold features and logits both", out.display());
        return Err(UseError::Fit(problem));
    }
    let Saved { model, description } = Saved::read(run)?;
    let images = match Set::named(input) {
        Some(set) => split.of(set.read(data)?)?,
        None => {
            let path = Path::new(input);
            let files = if path.is_dir() { files_in(path)? } else { vec![path.to_owned()] };
            read_images(&files, shape(&description.network.input))?
        }
    };
    let (width, classes) = (description.network.features.size, description.classes);
    let mut rows = Vec::with_capacity(images.len() * width);
    let mut scores = Vec::new();
    each(&model, &images, &description.mean, |outcome| {
        let length = norm(&outcome.features);
        let scale = if normalised && length > 0.0 { 1.0 / length } else { 1.0 };
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
        normalised,
    })
}

/// Where a file is, however its path is spelt.
fn place(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (whole.parent().and_then(|parent| parent.canonicalize().ok()), whole.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => whole,
    }
}

/// An array written, but for its name.
fn stage(path: &Path, shape: &[usize], values: &[f32]) -> Result<StagedArrays, UseError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| UseError::Fit(format!("{} names no file", path.display())))?;
    let mut staged = StagedArrays::new(directory_of(path))?;
    staged.add(name, shape, values)?;
    Ok(staged)
}

/// Writes the weights of a run's model to a safetensors file.
///
/// # Errors
/// When the model cannot be read, or the file cannot be written.
pub fn export(run: &Path, out: &Path) -> Result<usize, UseError> {
    let Saved { model, .. } = Saved::read(run)?;
    Ok(saved::export(&model, out)?)
}

fn shape(&[channels, height, width]: &[usize; 3]) -> Shape {
    Shape { channels, height, width }
}

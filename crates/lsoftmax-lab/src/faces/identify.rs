//! Whose faces are these?

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsoftmax_data::{files_in, is_image_file, read_images};
use lsoftmax_faces::{Embeddings, FacesError, Gallery, Identification};
use serde::Serialize;

use super::{FaceError, read_embeddings};
use crate::features::{Features, Flip};
use crate::inference::{InferenceError, input_shape};
use crate::model_file::TrainedModel;

/// Where faces come from: a folder with one directory per person, an image, or an `.npy` file of embeddings with a file of
/// names, one per line.
#[derive(Clone, Debug)]
pub struct FaceSource {
    /// The folder, image or array.
    pub path: PathBuf,
    /// The names of the rows of an array.
    pub names: Option<PathBuf>,
}

/// Faces as embeddings.
struct Faces {
    embeddings: Embeddings,
    /// What each is: a file, or a row.
    items: Vec<String>,
    /// The name of each, if known.
    names: Vec<Option<String>>,
}

/// How faces are identified.
#[derive(Clone, Debug)]
pub struct IdentifySettings {
    /// The number of people to name.
    pub top: usize,
    /// The angle in degrees beyond which a face is unknown.
    pub threshold: Option<f64>,
    /// People who are not in the gallery, to choose the threshold on.
    pub held_out: Option<FaceSource>,
    /// The fraction of strangers who may be taken for somebody.
    pub rate: f64,
    /// Where to save the gallery.
    pub save: Option<PathBuf>,
}

/// A face and who is nearest.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The file or row.
    pub probe: String,
    /// The person, if known.
    pub truth: Option<String>,
    /// Who it seems to be.
    #[serde(flatten)]
    pub found: Identification,
}

/// The result of an identification.
#[derive(Clone, Debug, Serialize)]
pub struct IdentifyReport {
    /// The number of faces in the gallery.
    pub gallery_faces: usize,
    /// The number of people in the gallery.
    pub gallery_people: usize,
    /// The angle in degrees beyond which a face is unknown.
    pub threshold: Option<f64>,
    /// Of the probes whose person is in the gallery, the fraction whose nearest person is right.
    pub rank_1: Option<f64>,
    /// The fraction whose person is among the nearest five.
    pub rank_5: Option<f64>,
    /// Of those probes, the fraction that is called unknown.
    pub known_rejected: Option<f64>,
    /// Of the probes of people who are not in the gallery, the fraction that is called unknown.
    pub strangers_rejected: Option<f64>,
    /// The probes.
    pub probes: Vec<Probe>,
}

/// Identifies probes in a gallery, which is a saved one (`.safetensors`) or made of faces. Images need a model.
///
/// # Errors
/// When files cannot be read, do not fit together, or the gallery cannot be saved.
pub fn identify(
    model: Option<&TrainedModel>,
    gallery: &FaceSource,
    probes: Option<&FaceSource>,
    settings: &IdentifySettings,
) -> Result<IdentifyReport, FaceError> {
    let is_saved = gallery.path.extension().is_some_and(|extension| extension == "safetensors");
    let mut gallery = if is_saved {
        Gallery::read(&gallery.path)?
    } else {
        let Faces { embeddings, names, items } = read(model, gallery)?;
        let named = names.into_iter().zip(items).map(|(name, item)| {
            name.ok_or_else(|| {
                problem(
                    Path::new(&item),
                    "a face of the gallery needs a name; put it into a directory of its person",
                )
            })
        });
        Gallery::new(&embeddings, &named.collect::<Result<Vec<_>, _>>()?)?
    };
    if let Some(held_out) = &settings.held_out {
        let strangers = read(model, held_out)?;
        let names: Vec<String> = strangers.names.into_iter().flatten().collect();
        let threshold = gallery.threshold_for(&strangers.embeddings, &names, settings.rate)?;
        gallery.threshold = Some(threshold);
    }
    gallery.threshold = settings.threshold.or(gallery.threshold);
    if let Some(path) = &settings.save {
        gallery.write(path)?;
    }
    let probes = probes.map(|probes| read(model, probes)).transpose()?;
    report(&gallery, probes, settings.top)
}

fn report(
    gallery: &Gallery,
    probes: Option<Faces>,
    top: usize,
) -> Result<IdentifyReport, FaceError> {
    let mut identified = Vec::new();
    let (mut known, mut first, mut among_five, mut known_unknown) = (0u32, 0u32, 0u32, 0u32);
    let (mut strangers, mut strangers_unknown) = (0u32, 0u32);
    if let Some(Faces { embeddings, items, names }) = probes {
        let found = gallery.identify(&embeddings, top.max(5))?;
        for ((probe, truth), mut found) in items.into_iter().zip(names).zip(found) {
            if let Some(truth) = &truth {
                if gallery.names().binary_search(truth).is_ok() {
                    let place = found.nearest.iter().position(|nearest| nearest.name == *truth);
                    known += 1;
                    first += u32::from(place == Some(0));
                    among_five += u32::from(place.is_some_and(|place| place < 5));
                    known_unknown += u32::from(found.unknown);
                } else {
                    strangers += 1;
                    strangers_unknown += u32::from(found.unknown);
                }
            }
            found.nearest.truncate(top);
            identified.push(Probe { probe, truth, found });
        }
    }
    let fraction = |part: u32, all: u32| (all > 0).then(|| f64::from(part) / f64::from(all));
    let with_threshold = |value: Option<f64>| value.filter(|_| gallery.threshold.is_some());
    Ok(IdentifyReport {
        gallery_faces: gallery.faces(),
        gallery_people: gallery.names().len(),
        threshold: gallery.threshold,
        rank_1: fraction(first, known),
        rank_5: fraction(among_five, known),
        known_rejected: with_threshold(fraction(known_unknown, known)),
        strangers_rejected: with_threshold(fraction(strangers_unknown, strangers)),
        probes: identified,
    })
}

fn read(model: Option<&TrainedModel>, source: &FaceSource) -> Result<Faces, FaceError> {
    let FaceSource { path, names } = source;
    if path.extension().is_some_and(|extension| extension == "npy") {
        let embeddings = read_embeddings(path)?;
        let names = match names {
            Some(file) => read_names(file, embeddings.rows())?,
            None => vec![None; embeddings.rows()],
        };
        let items = (0..embeddings.rows()).map(|row| format!("row {row}")).collect();
        return Ok(Faces { embeddings, items, names });
    }
    let model =
        model.ok_or_else(|| problem(path, "images need a model: give a run with --model"))?;
    let files: Vec<PathBuf> = match path.is_dir() {
        true => files_in(path)
            .map_err(FacesError::from)?
            .into_iter()
            .filter(|file| is_image_file(file))
            .collect(),
        false => vec![path.clone()],
    };
    if files.is_empty() {
        return Err(problem(path, "it has no images; give a folder with one directory per person"));
    }
    let shape = input_shape(&model.description.network.input);
    let images = read_images(&files, shape).map_err(FacesError::from)?;
    let features = Features::of(model, Arc::new(images), true).map_err(InferenceError::from)?;
    let (columns, rows) = features.rows(Some(Flip::Sum));
    let person = |file: &PathBuf| {
        let inner = file.strip_prefix(path).ok()?;
        let directory = inner.components().next().filter(|_| inner.components().count() > 1)?;
        Some(directory.as_os_str().to_string_lossy().into_owned())
    };
    Ok(Faces {
        embeddings: Embeddings::new(columns, rows)?,
        items: files.iter().map(|file| file.display().to_string()).collect(),
        names: files.iter().map(person).collect(),
    })
}

/// One name per line.
fn read_names(path: &Path, rows: usize) -> Result<Vec<Option<String>>, FaceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| FacesError::Read { path: path.to_owned(), source })?;
    let names: Vec<_> = text.lines().map(|line| Some(line.trim().to_owned())).collect();
    if names.len() != rows {
        let lines = names.len();
        return Err(problem(
            path,
            format!("it has {lines} names, but there are {rows} embeddings; give one per line"),
        ));
    }
    Ok(names)
}

fn problem(path: &Path, problem: impl Into<String>) -> FaceError {
    FacesError::File { path: path.to_owned(), problem: problem.into() }.into()
}

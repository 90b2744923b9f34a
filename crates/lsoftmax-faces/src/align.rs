//! Aligning a folder of images by their landmarks.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder, RgbImage};
use lsoftmax_data::files::write_atomic;
use lsoftmax_data::{DataError, files_in, is_image_file, read_photo};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::FacesError;
use crate::landmarks::Landmarks;
use crate::similarity::Similarity;
use crate::template::Template;
use crate::warp::warp;

/// The file that says that the images of a folder are aligned. It is hidden, so that the folder is one of people.
pub const MARKER: &str = ".aligned.json";

/// The number of images that are looked at to find out whether they are aligned already.
const SAMPLE: usize = 200;
/// Landmarks this close to the template, as a fraction of the distance between the eyes, are at it.
const AT_TEMPLATE: f64 = 0.12;
/// The number of images that each thread aligns before the watcher is asked again.
const IMAGES_PER_THREAD: usize = 32;

/// The crop to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crop {
    /// Where the landmarks go.
    pub template: Template,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
}

/// What was aligned, and what was not.
#[derive(Clone, Debug, Serialize)]
pub struct AlignReport {
    /// The crop.
    #[serde(flatten)]
    pub crop: Crop,
    /// The number of aligned images.
    pub aligned: usize,
    /// The images that have no landmarks; they were not aligned.
    pub without_landmarks: Vec<PathBuf>,
    /// The images whose landmarks coincide, so that they say nothing; they were not aligned.
    pub useless_landmarks: Vec<PathBuf>,
    /// The landmarks whose image does not exist.
    pub without_image: Vec<PathBuf>,
}

/// The contents of [`MARKER`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    #[serde(flatten)]
    crop: Crop,
    images: usize,
}

/// Is told the number of images done and their total, and may stop the work.
pub type WatchImages<'a> = dyn FnMut(usize, usize) -> ControlFlow<()> + 'a;

/// The crop that the images of a folder were aligned to, if its marker says so.
pub fn crop_of(folder: &Path) -> Option<Crop> {
    let text = fs::read_to_string(folder.join(MARKER)).ok()?;
    serde_json::from_str::<Marker>(&text).ok().map(|marker| marker.crop)
}

/// One aligned face; `None` if the landmarks coincide.
pub fn align_image(image: &RgbImage, points: &crate::FivePoints, crop: Crop) -> Option<RgbImage> {
    let Crop { template, width, height } = crop;
    let transform = Similarity::fit(points, &template.points(width, height))?;
    Some(warp(image, &transform, width, height))
}

/// Aligns the images in a folder and its subfolders, on all threads, to PNG files of the same names in `out`.
///
/// An image without landmarks is reported, not copied. `force` aligns images that look aligned already.
///
/// # Errors
/// When the images are aligned already, `out` has aligned images, or a file cannot be read or written.
pub fn align(
    images: &Path,
    landmarks: &Landmarks,
    out: &Path,
    crop: Crop,
    force: bool,
    watch: &mut WatchImages<'_>,
) -> Result<AlignReport, FacesError> {
    if out.join(MARKER).exists() {
        return Err(FacesError::file(
            out,
            "it already has aligned images; remove it or choose another folder",
        ));
    }
    let files: Vec<PathBuf> = files_in(images)?
        .into_iter()
        .filter(|file| is_image_file(file))
        .map(|file| file.strip_prefix(images).map_or(file.clone(), Path::to_owned))
        .collect();
    if !force {
        refuse_aligned(images, &files, landmarks)?;
    }
    let without_image =
        landmarks.images().into_iter().filter(|image| !images.join(image).is_file());
    let mut report = AlignReport {
        crop,
        aligned: 0,
        without_landmarks: Vec::new(),
        useless_landmarks: Vec::new(),
        without_image: without_image.map(Path::to_owned).collect(),
    };
    let group = IMAGES_PER_THREAD * rayon::current_num_threads();
    for (number, files_of_group) in files.chunks(group).enumerate() {
        let done = number * group;
        if watch(done, files.len()).is_break() {
            return Err(FacesError::Interrupted { done, total: files.len() });
        }
        let align = |file: &PathBuf| align_file(images, file, landmarks, out, crop);
        let results: Vec<_> = files_of_group.par_iter().map(align).collect();
        for (file, result) in files_of_group.iter().zip(results) {
            match result? {
                Outcome::Aligned => report.aligned += 1,
                Outcome::NoLandmarks => report.without_landmarks.push(file.clone()),
                Outcome::UselessLandmarks => report.useless_landmarks.push(file.clone()),
            }
        }
    }
    if report.aligned == 0 {
        let problem = "no image in it has landmarks; their paths must be relative to this folder";
        return Err(FacesError::file(images, problem));
    }
    let marker = Marker { crop, images: report.aligned };
    let text = serde_json::to_string_pretty(&marker).expect("plain values become JSON") + "\n";
    let path = out.join(MARKER);
    write_atomic(&path, &[text.as_bytes()]).map_err(FacesError::write(&path))?;
    Ok(report)
}

enum Outcome {
    Aligned,
    NoLandmarks,
    UselessLandmarks,
}

fn align_file(
    images: &Path,
    file: &Path,
    landmarks: &Landmarks,
    out: &Path,
    crop: Crop,
) -> Result<Outcome, FacesError> {
    let Some(points) = landmarks.of(file) else { return Ok(Outcome::NoLandmarks) };
    let photo = read_photo(&images.join(file))?.into_rgb8();
    let Some(face) = align_image(&photo, points, crop) else {
        return Ok(Outcome::UselessLandmarks);
    };
    let path = out.join(file).with_extension("png");
    write_png(&path, &face)?;
    Ok(Outcome::Aligned)
}

/// Writes a PNG file, quickly rather than small. The folder's marker, written last and synced, vouches for it.
fn write_png(path: &Path, image: &RgbImage) -> Result<(), FacesError> {
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Sub);
    encoder
        .write_image(image.as_raw(), image.width(), image.height(), ExtendedColorType::Rgb8)
        .expect("an image in memory can be encoded");
    let write = || fs::write(path, &bytes);
    let written = write().or_else(|_| {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        write()
    });
    written.map_err(FacesError::write(path))
}

/// Fails if the folder's marker, or the landmarks of most images, say that the images are aligned.
fn refuse_aligned(
    images: &Path,
    files: &[PathBuf],
    landmarks: &Landmarks,
) -> Result<(), FacesError> {
    let advice = "aligning twice ruins them; give the original photographs";
    if let Some(Crop { width, height, .. }) = crop_of(images) {
        let problem =
            format!("these images are already aligned, to {width} x {height} pixels: {advice}");
        return Err(FacesError::file(images, problem));
    }
    let known: Vec<&PathBuf> = files.iter().filter(|file| landmarks.of(file).is_some()).collect();
    let sample: Vec<&PathBuf> =
        known.iter().step_by(known.len().div_ceil(SAMPLE).max(1)).copied().collect();
    let is_aligned = |file: &&PathBuf| -> Result<bool, FacesError> {
        let path = images.join(file);
        let (width, height) = image::image_dimensions(&path).map_err(|error| {
            DataError::new(&path, lsoftmax_data::DataProblem::Image(error.to_string()))
        })?;
        let points = landmarks.of(file).expect("it was chosen for its landmarks");
        let at = |(_, template): (&str, Template)| {
            let (own_width, own_height) = template.size();
            let ratio = f64::from(width * own_height) / f64::from(height * own_width);
            (ratio - 1.0).abs() < 0.02
                && points.distance_to(&template.points(width, height)) < AT_TEMPLATE
        };
        Ok(Template::ALL.into_iter().any(at))
    };
    let mut aligned = 0;
    for file in &sample {
        aligned += usize::from(is_aligned(file)?);
    }
    if 2 * aligned > sample.len() {
        let problem = format!(
            "the landmarks of {aligned} of {} images are already where an aligned face has them: {advice}, or use --force if they are not aligned",
            sample.len()
        );
        return Err(FacesError::file(images, problem));
    }
    Ok(())
}

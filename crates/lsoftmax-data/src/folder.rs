//! Folders of images with one directory per class.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, imageops::FilterType};
use rayon::prelude::*;

use crate::dataset::{Dataset, Images, Shape};
use crate::error::{DataError, DataProblem};
use crate::runs::is_run_or_runs;
use crate::{contents, jpeg};

/// The largest height and width that images are resized to.
const SIDE_LIMIT: usize = 4096;
/// The largest height and width of an image file.
const FILE_SIDE_LIMIT: u32 = 1 << 15;
/// The largest number of pixels of an image file.
const FILE_PIXEL_LIMIT: u64 = 128_000_000;
/// The largest amount of memory for decoding one file, and for its decoded pixels.
const FILE_MEMORY_LIMIT: u64 = 512_000_000;

/// The name by which the standard input is read as an image file.
pub const STANDARD_INPUT: &str = "-";

/// The number of files that each thread reads before the watcher is asked again.
const FILES_PER_THREAD: usize = 16;

/// How far the reading of image files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of files that have been read.
    pub read: usize,
    /// The number of all files.
    pub total: usize,
}

/// Is told how far reading is, and may stop it.
pub type WatchReading<'a> = dyn FnMut(Reading) -> ControlFlow<()> + 'a;

/// Reads a folder with a directory of JPEG, PNG or WebP images for each class, or with two such folders
/// named `train` and `test`.
///
/// Classes and images are sorted by name, so the result does not depend on the file system. Hidden
/// files and directories are ignored, and so are the directories of training runs. An image is rotated
/// according to its EXIF orientation, center-cropped to the aspect ratio of `shape`, and resized to it;
/// transparency is dropped.
///
/// # Errors
/// When the folder does not have this layout, or images cannot be read; the error names all of them.
pub fn read_folder(path: impl AsRef<Path>, shape: Shape) -> Result<Dataset, DataError> {
    read_folder_watched(path, shape, &mut |_| ControlFlow::Continue(()))
}

/// As [`read_folder`]; `watch` is told how far it is, and may stop it.
///
/// # Errors
/// As [`read_folder`], and when `watch` stops it.
pub fn read_folder_watched(
    path: impl AsRef<Path>,
    shape: Shape,
    watch: &mut WatchReading<'_>,
) -> Result<Dataset, DataError> {
    let path = path.as_ref();
    let sides = 1..=SIDE_LIMIT;
    if !matches!(shape.channels, 1 | 3)
        || !sides.contains(&shape.height)
        || !sides.contains(&shape.width)
    {
        return Err(DataError::new(path, DataProblem::Shape(shape)));
    }
    let folders = class_folders(path);
    let names = classes(&folders[0])?;
    let mut lists = vec![list_images(&folders[0], &names, &names)?];
    if let Some(test) = folders.get(1) {
        let test_names = classes(test)?;
        if let Some(unknown) = test_names.iter().find(|name| !names.contains(name)) {
            return Err(DataError::new(test.join(unknown), DataProblem::UnknownClass));
        }
        lists.push(list_images(test, &names, &test_names)?);
    }
    let total = lists.iter().map(|list| list.files.len()).sum();
    let (mut parts, mut errors, mut read) = (Vec::new(), Vec::new(), 0);
    for ImageList { files, labels } in lists {
        let mut watch = |done: Reading| watch(Reading { read: read + done.read, total });
        let (images, failures) = try_files(&files, shape, &mut watch)?;
        read += files.len();
        errors.extend(failures.into_iter().map(|(_, error)| error));
        parts.push(images.of_files(labels, files));
    }
    if let Some(error) = DataError::of_files(errors, total) {
        return Err(error);
    }
    let mut parts = parts.into_iter();
    let train = parts.next().expect("there is a folder of training images");
    let test = parts.next();
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(Dataset {
        name: name.to_string_lossy().into_owned(),
        classes: names.len(),
        class_names: names.iter().map(|name| name.to_string_lossy().into_owned()).collect(),
        train,
        test,
    })
}

/// The numbers of classes and of training images of a folder, without decoding the images.
///
/// # Errors
/// When the folder does not have the layout that [`read_folder`] reads.
pub fn count_folder(path: impl AsRef<Path>) -> Result<(usize, usize), DataError> {
    let path = path.as_ref();
    let folder = &class_folders(path)[0];
    let names = classes(folder)?;
    let images = names.iter().map(|name| Ok(visible(&folder.join(name))?.len()));
    Ok((names.len(), images.sum::<Result<usize, DataError>>()?))
}

/// The folders with a directory for each class: `train` and `test` in a folder that has both, else the
/// folder itself.
pub(crate) fn class_folders(path: &Path) -> Vec<PathBuf> {
    // Rather than a class named `train` or `test`.
    let has_directories = |path: &PathBuf| {
        entries(path).is_ok_and(|names| names.iter().any(|name| path.join(name).is_dir()))
    };
    let divided = [path.join("train"), path.join("test")];
    if divided.iter().all(has_directories) { divided.into() } else { vec![path.to_owned()] }
}

/// The names in a directory that are neither hidden nor those of training runs, sorted.
fn entries(path: &Path) -> Result<Vec<OsString>, DataError> {
    let mut names = visible(path)?;
    names.retain(|name| !is_run_or_runs(&path.join(name)));
    Ok(names)
}

/// Whether a name begins with a dot.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// The names in a directory that are not hidden, sorted.
fn visible(path: &Path) -> Result<Vec<OsString>, DataError> {
    let to_error = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotADirectory => DataError::new(path, DataProblem::NotDirectory),
        std::io::ErrorKind::NotFound => DataError::new(path, DataProblem::NoFile),
        _ => DataError::new(path, DataProblem::Read(error)),
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(to_error)? {
        let name = entry.map_err(to_error)?.file_name();
        if !is_hidden(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn classes(path: &Path) -> Result<Vec<OsString>, DataError> {
    let names = entries(path)?;
    if let Some(file) = names.iter().find(|name| !path.join(name).is_dir()) {
        return Err(DataError::new(path.join(file), DataProblem::StrayFile));
    }
    if names.is_empty() {
        return Err(DataError::new(path, DataProblem::NoClasses));
    }
    // A model knows its classes by name, as text.
    if let Some(name) = names.iter().find(|name| name.to_str().is_none()) {
        return Err(DataError::new(path.join(name), DataProblem::ClassName));
    }
    Ok(names)
}

/// Image files, and their labels.
struct ImageList {
    files: Vec<PathBuf>,
    labels: Vec<u32>,
}

/// The images of the classes `present` in `path`; a label is an index into `names`.
fn list_images(
    path: &Path,
    names: &[OsString],
    present: &[OsString],
) -> Result<ImageList, DataError> {
    let (mut files, mut labels) = (Vec::new(), Vec::new());
    for (label, name) in names.iter().enumerate().filter(|(_, name)| present.contains(name)) {
        let class = path.join(name);
        let images = visible(&class)?;
        if images.is_empty() {
            return Err(DataError::new(class, DataProblem::EmptyClass));
        }
        labels.extend(images.iter().map(|_| label as u32));
        files.extend(images.iter().map(|image| class.join(image)));
    }
    Ok(ImageList { files, labels })
}

/// Reads image files, in the order given, as images of `shape`; all have the label 0. The file `-` is the
/// standard input.
///
/// # Errors
/// When an image cannot be read; the error names all such images.
pub fn read_images(files: &[PathBuf], shape: Shape) -> Result<Images, DataError> {
    let (images, failures) = try_files(files, shape, &mut |_| ControlFlow::Continue(()))?;
    let errors = failures.into_iter().map(|(_, error)| error).collect();
    DataError::of_files(errors, files.len()).map_or(Ok(images), Err)
}

/// As [`read_images`], but leaves out images that cannot be read: also returns what is wrong with each.
///
/// # Errors
/// When memory runs out.
pub fn read_readable_images(
    files: &[PathBuf],
    shape: Shape,
) -> Result<(Images, Vec<DataError>), DataError> {
    let (images, failures) = try_files(files, shape, &mut |_| ControlFlow::Continue(()))?;
    let (bad, errors): (HashSet<usize>, Vec<DataError>) = failures.into_iter().unzip();
    if errors.is_empty() {
        return Ok((images, errors));
    }
    let good: Vec<u32> =
        (0..files.len()).filter(|index| !bad.contains(index)).map(|index| index as u32).collect();
    let shape = images.shape();
    let memory = |_| DataError::new(&files[0], DataProblem::Memory { images: good.len(), shape });
    Ok((images.select(&good).map_err(memory)?, errors))
}

/// Reads what can be read. Returns an image for every file, and the indices of those that could not be
/// read with the reasons.
fn try_files(
    files: &[PathBuf],
    shape: Shape,
    watch: &mut WatchReading<'_>,
) -> Result<(Images, Vec<(usize, DataError)>), DataError> {
    let mut pixels = Vec::new();
    let size = files.len().checked_mul(shape.pixels());
    if size.is_none_or(|size| pixels.try_reserve_exact(size).is_err()) {
        let first = files.first().cloned().unwrap_or_default();
        return Err(DataError::new(first, DataProblem::Memory { images: files.len(), shape }));
    }
    pixels.resize(files.len() * shape.pixels(), 0);
    let mut failures = Vec::new();
    let group = FILES_PER_THREAD * rayon::current_num_threads();
    let groups = pixels.chunks_mut(group * shape.pixels()).zip(files.chunks(group));
    for (number, (pixels, group_files)) in groups.enumerate() {
        let read = number * group;
        if watch(Reading { read, total: files.len() }).is_break() {
            return Err(DataError::new(&group_files[0], DataProblem::Interrupted));
        }
        let each = pixels.par_chunks_exact_mut(shape.pixels()).zip(group_files);
        let results: Vec<_> = each.map(|(pixels, file)| read_image(file, shape, pixels)).collect();
        let failed = results
            .into_iter()
            .enumerate()
            .filter_map(|(at, result)| result.err().map(|error| (read + at, error)));
        failures.extend(failed);
    }
    let images = Images::new(shape, pixels, vec![0; files.len()]).expect("one image per file");
    Ok((images.of_files(vec![0; files.len()], files.to_vec()), failures))
}

/// The files in a directory and its subdirectories, sorted; hidden ones, training runs and links to a
/// directory that they are in are ignored.
///
/// # Errors
/// When a directory cannot be read.
pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    add_files(directory, &mut Vec::new(), &mut files)?;
    Ok(files)
}

/// Adds the files in a directory; `above` has the real paths of those that it is in.
fn add_files(
    directory: &Path,
    above: &mut Vec<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> Result<(), DataError> {
    let names = entries(directory)?;
    let real = directory
        .canonicalize()
        .map_err(|error| DataError::new(directory, DataProblem::Read(error)))?;
    if above.contains(&real) {
        return Ok(());
    }
    above.push(real);
    for name in names {
        let path = directory.join(name);
        if path.is_dir() { add_files(&path, above, files)? } else { files.push(path) }
    }
    above.pop();
    Ok(())
}

/// Whether a file has the extension of an image that can be read.
pub fn is_image_file(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    ["jpg", "jpeg", "png", "webp"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Reads a JPEG, PNG or WebP file in its own size, rotated according to its EXIF orientation.
///
/// # Errors
/// When the file cannot be read, is not such an image, or is too large.
pub fn read_photo(path: &Path) -> Result<DynamicImage, DataError> {
    if path.is_dir() {
        return Err(DataError::new(path, DataProblem::NestedDirectory));
    }
    let file = contents::open(path).map_err(|error| match error.problem {
        DataProblem::Missing => DataError::new(path, DataProblem::NoFile),
        _ => error,
    })?;
    decode(BufReader::new(file)).map_err(|problem| DataError::new(path, problem))
}

fn read_image(path: &Path, shape: Shape, pixels: &mut [u8]) -> Result<(), DataError> {
    let image = if path.as_os_str() == STANDARD_INPUT {
        decode_standard_input().map_err(|problem| DataError::new("standard input", problem))?
    } else {
        read_photo(path)?
    };
    let image = fit(image, shape.height as u32, shape.width as u32);
    match shape.channels {
        1 => pixels.copy_from_slice(image.into_luma8().as_raw()),
        _ => {
            let image = image.into_rgb8();
            let (red, rest) = pixels.split_at_mut(shape.height * shape.width);
            let (green, blue) = rest.split_at_mut(shape.height * shape.width);
            let planes = red.iter_mut().zip(green).zip(blue);
            for (((red, green), blue), pixel) in planes.zip(image.pixels()) {
                [*red, *green, *blue] = pixel.0;
            }
        }
    }
    Ok(())
}

fn decode_standard_input() -> Result<DynamicImage, DataProblem> {
    let mut bytes = Vec::new();
    let input = std::io::stdin().lock();
    input.take(FILE_MEMORY_LIMIT).read_to_end(&mut bytes).map_err(DataProblem::Read)?;
    decode(Cursor::new(bytes))
}

fn decode(mut file: impl BufRead + Seek) -> Result<DynamicImage, DataProblem> {
    let format = ImageReader::new(&mut file).with_guessed_format().map(|reader| reader.format());
    let format = match format.map_err(DataProblem::Read)? {
        Some(known @ (ImageFormat::Jpeg | ImageFormat::Png | ImageFormat::WebP)) => known,
        _ => return Err(DataProblem::NotImage),
    };
    if format == ImageFormat::Jpeg {
        if !jpeg::is_complete(&mut file).map_err(DataProblem::Read)? {
            return Err(DataProblem::Image(
                "the file is truncated: its end marker is missing".into(),
            ));
        }
        file.rewind().map_err(DataProblem::Read)?;
    }
    let mut reader = ImageReader::with_format(file, format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(FILE_SIDE_LIMIT);
    limits.max_image_height = Some(FILE_SIDE_LIMIT);
    limits.max_alloc = Some(FILE_MEMORY_LIMIT);
    reader.limits(limits);
    let to_error = |error: image::ImageError| {
        // Some reasons end with a line break.
        DataProblem::Image(error.to_string().trim_end().to_owned())
    };
    let mut decoder = reader.into_decoder().map_err(to_error)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels > FILE_PIXEL_LIMIT || decoder.total_bytes() > FILE_MEMORY_LIMIT {
        return Err(DataProblem::ImageSize { width, height });
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(to_error)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Center-crops an image to the aspect ratio of `height` x `width`, then resizes it. Cropping first
/// bounds the memory: no intermediate image is larger than both the input and the output.
fn fit(image: DynamicImage, height: u32, width: u32) -> DynamicImage {
    let (rows, columns) = (u64::from(image.height()), u64::from(image.width()));
    let (h, w) = (u64::from(height), u64::from(width));
    // The largest crop with the aspect ratio w : h, to the nearest pixel.
    let (part_rows, part_columns) = if columns * h > rows * w {
        (rows, ((2 * rows * w + h) / (2 * h)).clamp(1, columns))
    } else {
        (((2 * columns * h + w) / (2 * w)).clamp(1, rows), columns)
    };
    let (top, left) = ((rows - part_rows) / 2, (columns - part_columns) / 2);
    let part = if (part_rows, part_columns) == (rows, columns) {
        image
    } else {
        image.crop_imm(left as u32, top as u32, part_columns as u32, part_rows as u32)
    };
    if (part.height(), part.width()) == (height, width) {
        return part;
    }
    part.resize_exact(width, height, FilterType::CatmullRom)
}

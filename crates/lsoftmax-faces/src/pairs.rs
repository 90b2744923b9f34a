//! Pairs of faces, in folds.

use std::path::{Path, PathBuf};

use crate::FacesError;
use crate::delimited::Table;

/// Two faces, and whether they are of the same person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The row or image on the left.
    pub left: usize,
    /// The row or image on the right.
    pub right: usize,
    /// Whether both are of the same person.
    pub same: bool,
    /// The fold, from 0.
    pub fold: usize,
}

impl Pair {
    /// Every pair of images, in one fold; `people` has the person of each image.
    ///
    /// ```
    /// use lsoftmax_faces::Pair;
    /// let same: Vec<bool> = Pair::all(&[7, 7, 9]).iter().map(|pair| pair.same).collect();
    /// assert_eq!(same, [true, false, false]);
    /// ```
    pub fn all(people: &[u32]) -> Vec<Self> {
        let with_later = |left: usize| {
            let pair =
                move |right| Self { left, right, same: people[left] == people[right], fold: 0 };
            (left + 1..people.len()).map(pair)
        };
        (0..people.len()).flat_map(with_later).collect()
    }
}

/// Pairs of faces, by their rows in a table of embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// The pairs, in the order of the file.
    pub pairs: Vec<Pair>,
    /// The images, relative to their directory and without extension; empty if the file has row numbers.
    pub images: Vec<PathBuf>,
}

impl Pairs {
    /// Reads a table with the columns `left`, `right` (row numbers from 0), `same` (0 or 1) and `fold` (from 0),
    /// separated by commas or tabs, of pairs of `rows` rows.
    ///
    /// # Errors
    /// When the file cannot be read, a field is not such a number, or a row does not exist.
    pub fn read_table(path: &Path, rows: usize) -> Result<Self, FacesError> {
        let table = Table::read(path)?;
        let columns = ["left", "right", "same", "fold"].map(|name| table.column(name));
        let [left, right, same, fold] = columns;
        let (left, right, same, fold) = (left?, right?, same?, fold?);
        let mut pairs = Vec::new();
        for row in table.rows() {
            let number = |column: usize, name: &str| -> Result<usize, FacesError> {
                let found = row.parse(column, &format!("`{name}` must be a row number"))?;
                if found >= rows {
                    let problem = format!(
                        "`{name}` is {found}, but the embeddings have the rows 0 to {}; use those that the pairs were made for",
                        rows - 1
                    );
                    return Err(row.error(problem));
                }
                Ok(found)
            };
            pairs.push(Pair {
                left: number(left, "left")?,
                right: number(right, "right")?,
                same: match row.text(same) {
                    "0" => false,
                    "1" => true,
                    other => {
                        return Err(row.error(format!("`same` must be 0 or 1, but is `{other}`")));
                    }
                },
                fold: row.parse(fold, "`fold` must be a whole number from 0")?,
            });
        }
        if pairs.is_empty() {
            return Err(FacesError::file(path, "it has no pairs; add a line for each"));
        }
        Ok(Self { pairs, images: Vec::new() })
    }

    /// Reads a file in the format of LFW's `pairs.txt`: the numbers of folds and of pairs of each kind per fold,
    /// then for every fold the pairs of the same person (name, image, image) and of different people (name, image,
    /// name, image). An image is `NAME/NAME_0001`.
    ///
    /// # Errors
    /// When the file cannot be read or does not have this format.
    pub fn read_lfw(path: &Path) -> Result<Self, FacesError> {
        let text = std::fs::read_to_string(path).map_err(FacesError::read(path))?;
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let header: Vec<&str> =
            lines.next().map_or(Vec::new(), |(_, line)| line.split_whitespace().collect());
        let header: Vec<usize> = header.iter().map_while(|field| field.parse().ok()).collect();
        let (folds, each) = match header[..] {
            [folds, each] => (folds, each),
            [each] => (1, each),
            _ => (0, 0),
        };
        let total = folds.checked_mul(each).and_then(|pairs| pairs.checked_mul(2));
        let Some(total) = total.filter(|total| *total > 0) else {
            let problem = "it must hold the numbers of folds and of pairs, such as `10 300`; use LFW's pairs.txt";
            return Err(FacesError::line(path, 1, problem));
        };
        let mut images = ImageNumbers::default();
        let mut pairs = Vec::new();
        for fold in 0..folds {
            for index in 0..2 * each {
                let same = index < each;
                let Some((at, line)) = lines.next() else {
                    let problem = format!(
                        "it ends after {} of {total} pairs; download it again",
                        pairs.len()
                    );
                    return Err(FacesError::file(path, problem));
                };
                let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
                let fields =
                    if fields.len() > 1 { fields } else { line.split_whitespace().collect() };
                let number = |text: &str| text.parse::<u32>().ok();
                let (left, right) = match (same, &fields[..]) {
                    (true, [name, one, other]) => ((*name, number(one)), (*name, number(other))),
                    (false, [name, one, other_name, other]) => {
                        ((*name, number(one)), (*other_name, number(other)))
                    }
                    _ => ((line, None), (line, None)),
                };
                let ((left, Some(one)), (right, Some(other))) = (left, right) else {
                    let expected = if same { "NAME IMAGE IMAGE" } else { "NAME IMAGE NAME IMAGE" };
                    let problem = format!("it should be `{expected}`, but is `{}`", line.trim());
                    return Err(FacesError::line(path, at + 1, problem));
                };
                let (left, right) = (images.number(left, one), images.number(right, other));
                pairs.push(Pair { left, right, same, fold });
            }
        }
        if let Some((at, _)) = lines.next() {
            let problem = format!(
                "the first line says that there are {} pairs, but more follow",
                pairs.len()
            );
            return Err(FacesError::line(path, at + 1, problem));
        }
        Ok(Self { pairs, images: images.paths })
    }

    /// The files of the images in a directory, whatever their extension.
    ///
    /// # Errors
    /// When images are missing, which are counted, or an image exists with two extensions.
    pub fn files(&self, directory: &Path) -> Result<Vec<PathBuf>, FacesError> {
        let mut found = Vec::with_capacity(self.images.len());
        let mut missing: Vec<&Path> = Vec::new();
        for image in &self.images {
            let stem = directory.join(image);
            let files: Vec<PathBuf> = ["png", "jpg", "jpeg", "webp"]
                .map(|extension| stem.with_added_extension(extension))
                .into_iter()
                .filter(|path| path.is_file())
                .collect();
            match &files[..] {
                [] => missing.push(image),
                [file] => found.push(file.clone()),
                [file, ..] => {
                    return Err(FacesError::file(
                        file,
                        "this image exists in two formats; remove one",
                    ));
                }
            }
        }
        if let [first, ..] = missing[..] {
            let problem = format!(
                "{} of the {} images of the pairs are missing, the first is {}; a pair without its images has no score, so add their landmarks and align them again",
                missing.len(),
                self.images.len(),
                first.display()
            );
            return Err(FacesError::file(directory, problem));
        }
        Ok(found)
    }
}

/// Images by the order in which they are first named.
#[derive(Default)]
struct ImageNumbers {
    paths: Vec<PathBuf>,
    numbers: std::collections::HashMap<PathBuf, usize>,
}

impl ImageNumbers {
    fn number(&mut self, name: &str, image: u32) -> usize {
        let path = Path::new(name).join(format!("{name}_{image:04}"));
        *self.numbers.entry(path.clone()).or_insert_with(|| {
            self.paths.push(path);
            self.paths.len() - 1
        })
    }
}

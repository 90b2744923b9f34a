//! Five points per face.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::FacesError;
use crate::delimited::Table;

/// Left eye, right eye, nose, left and right corner of the mouth, as seen in the picture: x and y in pixels, whole
/// numbers at pixel centres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FivePoints(pub [[f64; 2]; 5]);

impl FivePoints {
    /// The root mean square distance to other points, as a fraction of their distance between the eyes.
    pub(crate) fn distance_to(&self, other: &Self) -> f64 {
        let squared = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2);
        let mean = self.0.iter().zip(other.0).map(|(a, b)| squared(*a, b)).sum::<f64>() / 5.0;
        (mean / squared(other.0[0], other.0[1])).sqrt()
    }
}

/// The landmarks of images, by path.
#[derive(Clone, Debug, Default)]
pub struct Landmarks {
    points: HashMap<PathBuf, FivePoints>,
}

impl Landmarks {
    /// Reads a table with a header, separated by tabs or commas: the path of an image relative to its directory, then
    /// x and y of the left eye, the right eye, the nose, and the left and right corner of the mouth.
    ///
    /// # Errors
    /// When the file cannot be read, a line does not have these fields, or a path is there twice.
    pub fn read(path: &Path) -> Result<Self, FacesError> {
        let table = Table::read(path)?;
        if table.width() != 11 || table.column("path")? != 0 {
            let problem = format!(
                "landmarks need the column `path` and x and y of five points, 11 columns; it has {}",
                table.width()
            );
            return Err(FacesError::line(path, 1, problem));
        }
        let mut points = HashMap::new();
        for row in table.rows() {
            let mut five = [[0.0f64; 2]; 5];
            for (index, place) in five.as_flattened_mut().iter_mut().enumerate() {
                *place = row.parse(index + 1, "a coordinate must be a number")?;
                if !place.is_finite() {
                    return Err(row
                        .error(format!("a coordinate is {place}; remove the line or correct it")));
                }
            }
            let image = normal(Path::new(row.text(0)));
            if points.insert(image, FivePoints(five)).is_some() {
                return Err(row.error(format!("{} is here twice; remove one line", row.text(0))));
            }
        }
        Ok(Self { points })
    }

    /// The landmarks of an image by its path relative to the directory.
    pub fn of(&self, image: &Path) -> Option<&FivePoints> {
        self.points.get(&normal(image))
    }

    /// The images that have landmarks, in order.
    pub fn images(&self) -> Vec<&Path> {
        let mut images: Vec<&Path> = self.points.keys().map(PathBuf::as_path).collect();
        images.sort_unstable();
        images
    }
}

/// A relative path without `.`.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

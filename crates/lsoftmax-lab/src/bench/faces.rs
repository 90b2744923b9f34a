//! The speed of work on faces: aligning, verifying, identifying.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use image::{Rgb, RgbImage};
use lsoftmax_faces::align::{Crop, align};
use lsoftmax_faces::{Embeddings, Gallery, Landmarks, Pair, Protocol, Template, verify};
use serde::Serialize;

use super::BenchError;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct FacesBench {
    /// Photographs of 96 x 96 pixels to align to 96 x 112, from JPEG to PNG files.
    pub images: usize,
    /// Pairs to verify, in ten folds.
    pub pairs: usize,
    /// Faces in the gallery.
    pub gallery: usize,
    /// Features of a face.
    pub features: usize,
}

/// What was measured, on all threads.
#[derive(Clone, Debug, Serialize)]
pub struct FacesTiming {
    /// The number of images aligned.
    pub images: usize,
    /// Images aligned per second, with reading and writing.
    pub aligned_per_second: f64,
    /// The number of pairs.
    pub pairs: usize,
    /// The number of features.
    pub features: usize,
    /// The time to verify all pairs, by protocol.
    pub verify_seconds: BTreeMap<&'static str, f64>,
    /// The number of faces in the gallery.
    pub gallery: usize,
    /// The time to find the nearest people of one probe, the least of three.
    pub identify_seconds: f64,
    /// The time per probe when there are 64.
    pub identify_seconds_of_many: f64,
    /// The number of threads.
    pub threads: usize,
}

impl FacesBench {
    /// Measures on drawn images and random embeddings, in a temporary directory.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn run(&self) -> Result<FacesTiming, BenchError> {
        let embeddings = random_rows(2 * self.pairs.max(1), self.features, 1);
        let pair = |number: usize| Pair {
            left: 2 * number,
            right: 2 * number + 1,
            same: number.is_multiple_of(2),
            fold: number * 10 / self.pairs,
        };
        let pairs: Vec<Pair> = (0..self.pairs).map(pair).collect();
        let verify_seconds = Protocol::ALL.map(|(name, protocol)| {
            let start = Instant::now();
            verify(&embeddings, &pairs, protocol).expect("ten folds of finite rows");
            (name, start.elapsed().as_secs_f64())
        });
        let (identify_seconds, identify_seconds_of_many) = self.identify();
        Ok(FacesTiming {
            images: self.images,
            aligned_per_second: self.images as f64 / self.align()?,
            pairs: self.pairs,
            features: self.features,
            verify_seconds: verify_seconds.into(),
            gallery: self.gallery,
            identify_seconds,
            identify_seconds_of_many,
            threads: rayon::current_num_threads(),
        })
    }

    fn identify(&self) -> (f64, f64) {
        let names: Vec<String> =
            (0..self.gallery).map(|face| format!("person {}", face / 10)).collect();
        let rows = random_rows(self.gallery, self.features, 2);
        let gallery = Gallery::new(&rows, &names).expect("one name per face");
        drop((rows, names));
        let seconds = |probes: &Embeddings| {
            let start = Instant::now();
            gallery.identify(probes, 5).expect("probes of as many features");
            start.elapsed().as_secs_f64() / probes.rows() as f64
        };
        let one = random_rows(1, self.features, 3);
        let least = (0..3).map(|_| seconds(&one)).fold(f64::INFINITY, f64::min);
        (least, seconds(&random_rows(64, self.features, 4)))
    }

    fn align(&self) -> Result<f64, BenchError> {
        let directory =
            tempfile::tempdir().map_err(|error| BenchError::Files(error.to_string()))?;
        let failed = |error: String| BenchError::Files(error);
        let (photos, table) =
            (directory.path().join("photos"), directory.path().join("points.tsv"));
        fs::create_dir(&photos).map_err(|error| failed(error.to_string()))?;
        draw(self.images, &photos, &table).map_err(failed)?;
        let landmarks = Landmarks::read(&table).map_err(|error| failed(error.to_string()))?;
        let crop = Crop { template: Template::SphereFace, width: 96, height: 112 };
        let start = Instant::now();
        let mut watch = |_, _| ControlFlow::Continue(());
        align(&photos, &landmarks, &directory.path().join("aligned"), crop, false, &mut watch)
            .map_err(|error| failed(error.to_string()))?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Draws photographs with landmarks.
fn draw(images: usize, folder: &Path, table: &Path) -> Result<(), String> {
    let mut text = String::from("path\ta\tb\tc\td\te\tf\tg\th\ti\tj\n");
    for number in 0..images as u32 {
        let shade = |x: u32, y: u32| ((x * (3 + number % 7) + y * (2 + number % 5)) % 200) as u8;
        let photo =
            RgbImage::from_fn(96, 96, |x, y| Rgb([shade(x, y), shade(y, x), (x + y) as u8]));
        photo.save(folder.join(format!("{number}.jpg"))).map_err(|error| error.to_string())?;
        let shift = f64::from(number % 10) / 2.0;
        let points = [35.0, 34.0, 61.0, 33.0, 48.0, 48.0, 36.0, 60.0, 60.0, 60.0];
        let points = points.map(|point| (point + shift).to_string()).join("\t");
        text.push_str(&format!("{number}.jpg\t{points}\n"));
    }
    fs::write(table, text).map_err(|error| error.to_string())
}

/// Rows of numbers from −1 to 1.
fn random_rows(rows: usize, columns: usize, seed: u64) -> Embeddings {
    let number = |index: usize| {
        let mut word = (index as u64 + (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((word >> 40) as f32) / (1 << 23) as f32 - 1.0
    };
    Embeddings::new(columns, (0..rows * columns).map(number).collect()).expect("whole finite rows")
}

//! Identification: whose face is this?

use std::collections::HashMap;
use std::path::Path;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use lsoftmax_data::files::write_atomic;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Serialize;

use crate::FacesError;
use crate::embeddings::Embeddings;

/// The number of gallery faces in a task: they stay in the cache while they are compared with several probes.
const BLOCK: usize = 512;
/// The number of probes that are compared at a time, so that the best people of all tasks fit into memory.
const PROBES: usize = 64;

/// Faces with names, to identify others by: rows of length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Gallery {
    columns: usize,
    rows: Vec<f32>,
    /// The person of each row, an index into `names`.
    people: Vec<u32>,
    names: Vec<String>,
    /// The angle beyond which a face is of nobody in the gallery, in degrees, if it was chosen.
    pub threshold: Option<f64>,
}

/// A person of the gallery, and the angle to the nearest of their faces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// The name.
    pub name: String,
    /// The angle in degrees.
    pub angle: f64,
}

/// The nearest people of a probe, nearest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Identification {
    /// The people.
    pub nearest: Vec<Match>,
    /// Whether the nearest is beyond the threshold.
    pub unknown: bool,
}

impl Gallery {
    /// A gallery of embeddings, each with the name of its person. Rows of zeros are at 90° to everything.
    ///
    /// # Errors
    /// When the numbers of rows and names differ.
    pub fn new(embeddings: &Embeddings, names: &[String]) -> Result<Self, FacesError> {
        if embeddings.rows() != names.len() || names.is_empty() {
            let problem = format!(
                "there are {} embeddings and {} names; every face needs a name",
                embeddings.rows(),
                names.len()
            );
            return Err(FacesError::file(Path::new("the gallery"), problem));
        }
        let mut unique: Vec<String> = names.to_vec();
        unique.sort_unstable();
        unique.dedup();
        let numbers: HashMap<&String, u32> = unique.iter().zip(0..).collect();
        let people = names.iter().map(|name| numbers[name]).collect();
        let rows = normalised(embeddings);
        Ok(Self { columns: embeddings.columns(), rows, people, names: unique, threshold: None })
    }

    /// The number of faces.
    pub fn faces(&self) -> usize {
        self.people.len()
    }

    /// The names of its people, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The `top` nearest people of every probe: exact, by the cosine to every face.
    ///
    /// # Errors
    /// When the probes have another number of columns.
    pub fn identify(
        &self,
        probes: &Embeddings,
        top: usize,
    ) -> Result<Vec<Identification>, FacesError> {
        if probes.columns() != self.columns {
            let problem = format!(
                "the probes have {} numbers per face, the gallery {}; use the same model for both",
                probes.columns(),
                self.columns
            );
            return Err(FacesError::file(Path::new("the probes"), problem));
        }
        let rows = normalised(probes);
        let found = rows.chunks(PROBES * self.columns).flat_map(|probes| self.nearest(probes, top));
        Ok(found.collect())
    }

    fn nearest(&self, probes: &[f32], top: usize) -> Vec<Identification> {
        let width = self.columns;
        let probes = MatRef::from_row_major_slice(probes, probes.len() / width, width);
        let blocks = self.rows.par_chunks(BLOCK * width).zip(self.people.par_chunks(BLOCK));
        // Per probe the best cosine of every person in the block; a person's best is the best of all blocks.
        let of_block = |(rows, people): (&[f32], &[u32])| -> Vec<Vec<(u32, f32)>> {
            let rows = MatRef::from_row_major_slice(rows, people.len(), width);
            let mut cosines = Mat::<f32>::zeros(people.len(), probes.nrows());
            matmul(&mut cosines, Accum::Replace, rows, probes.transpose(), 1.0, Par::Seq);
            let best = |probe: usize| {
                let mut best: Vec<(u32, f32)> = Vec::new();
                for (person, cosine) in people.iter().zip(cosines.col(probe).iter()) {
                    match best.last_mut() {
                        Some((last, most)) if last == person => *most = most.max(*cosine),
                        _ => best.push((*person, *cosine)),
                    }
                }
                keep_best(best, top)
            };
            (0..probes.nrows()).map(best).collect()
        };
        let blocks: Vec<_> = blocks.map(of_block).collect();
        let of_probe = |probe: usize| {
            let candidates = blocks.iter().flat_map(|block| block[probe].iter().copied()).collect();
            let nearest: Vec<Match> = keep_best(candidates, top)
                .into_iter()
                .map(|(person, cosine)| Match {
                    name: self.names[person as usize].clone(),
                    angle: f64::from(cosine).clamp(-1.0, 1.0).acos().to_degrees(),
                })
                .collect();
            let angle = nearest.first().map_or(180.0, |nearest| nearest.angle);
            let unknown = self.threshold.is_some_and(|threshold| angle > threshold);
            Identification { nearest, unknown }
        };
        (0..probes.nrows()).map(of_probe).collect()
    }

    /// The angle that at most a fraction `rate` of strangers is nearer than: of people who are not in the gallery, such as
    /// those held out of training.
    ///
    /// # Errors
    /// When the strangers have another number of columns, or one of the names is in the gallery.
    pub fn threshold_for(
        &self,
        strangers: &Embeddings,
        names: &[String],
        rate: f64,
    ) -> Result<f64, FacesError> {
        if let Some(known) = names.iter().find(|name| self.names.binary_search(name).is_ok()) {
            let problem =
                format!("{known} is in the gallery; choose the threshold on other people");
            return Err(FacesError::file(Path::new("the held-out people"), problem));
        }
        let nearest = self.identify(strangers, 1)?;
        let mut angles: Vec<f64> = nearest.iter().map(|found| found.nearest[0].angle).collect();
        angles.sort_by(f64::total_cmp);
        let accepted = (rate * angles.len() as f64).floor() as usize;
        // Angles up to the threshold are known: it is just below the first that must not be.
        Ok(angles.get(accepted).map_or(180.0, |first| first.next_down()))
    }

    /// Writes the gallery as one safetensors file: `embeddings`, `people`, and the names and the threshold in its metadata.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FacesError> {
        let floats: Vec<u8> = self.rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        let people: Vec<u8> = self.people.iter().flat_map(|person| person.to_le_bytes()).collect();
        let view = |dtype, shape: Vec<usize>, bytes| {
            TensorView::new(dtype, shape, bytes).expect("as many bytes as its shape has")
        };
        let tensors = [
            ("embeddings", view(Dtype::F32, vec![self.faces(), self.columns], &floats[..])),
            ("people", view(Dtype::U32, vec![self.faces()], &people[..])),
        ];
        let names = serde_json::to_string(&self.names).expect("names become JSON");
        let mut metadata = HashMap::from([("names".to_owned(), names)]);
        metadata.extend(
            self.threshold.map(|angle| ("threshold_degrees".to_owned(), angle.to_string())),
        );
        let bytes = safetensors::serialize(tensors, Some(metadata)).expect("a valid header");
        write_atomic(path, &[&bytes]).map_err(FacesError::write(path))
    }

    /// Reads a gallery.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a gallery.
    pub fn read(path: &Path) -> Result<Self, FacesError> {
        let bytes = std::fs::read(path).map_err(FacesError::read(path))?;
        let invalid = |reason: String| {
            FacesError::file(
                path,
                format!(
                    "this is not a gallery ({reason}); make it again with `lsoftmax identify --save`"
                ),
            )
        };
        let (_, header) =
            SafeTensors::read_metadata(&bytes).map_err(|error| invalid(error.to_string()))?;
        let tensors =
            SafeTensors::deserialize(&bytes).map_err(|error| invalid(error.to_string()))?;
        let tensor = |name: &str, dtype: Dtype| {
            let tensor = tensors.tensor(name).map_err(|error| invalid(error.to_string()))?;
            if tensor.dtype() == dtype {
                Ok(tensor)
            } else {
                Err(invalid(format!("{name} is {:?}", tensor.dtype())))
            }
        };
        let (embeddings, people) =
            (tensor("embeddings", Dtype::F32)?, tensor("people", Dtype::U32)?);
        let metadata = header.metadata().clone().unwrap_or_default();
        let names: Vec<String> = metadata
            .get("names")
            .and_then(|names| serde_json::from_str(names).ok())
            .ok_or_else(|| invalid("it has no names".into()))?;
        let threshold = metadata.get("threshold_degrees").and_then(|angle| angle.parse().ok());
        let words = |data: &[u8]| data.as_chunks().0.to_vec();
        let rows: Vec<f32> = words(embeddings.data()).into_iter().map(f32::from_le_bytes).collect();
        let people: Vec<u32> = words(people.data()).into_iter().map(u32::from_le_bytes).collect();
        let [faces, columns] = embeddings.shape()[..] else {
            return Err(invalid("its embeddings are not a table".into()));
        };
        let is_sorted = names.is_sorted_by(|one, other| one < other);
        let fits = people.len() == faces && faces > 0 && columns > 0 && is_sorted;
        if !fits || people.iter().any(|person| *person as usize >= names.len()) {
            return Err(invalid("its names do not fit its faces".into()));
        }
        if let Some(bad) = rows.iter().position(|value| !value.is_finite()) {
            return Err(invalid(format!("row {} is not finite", bad / columns)));
        }
        Ok(Self { columns, rows, people, names, threshold })
    }
}

/// The best cosine of each person, the `top` best people, best first; ties by the order of the names.
fn keep_best(mut candidates: Vec<(u32, f32)>, top: usize) -> Vec<(u32, f32)> {
    candidates.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let mut kept: Vec<(u32, f32)> = Vec::with_capacity(top);
    for candidate in candidates {
        if kept.len() == top {
            break;
        }
        if kept.iter().all(|(person, _)| *person != candidate.0) {
            kept.push(candidate);
        }
    }
    kept
}

/// Rows of length 1; a row of zeros stays.
fn normalised(embeddings: &Embeddings) -> Vec<f32> {
    let mut values = embeddings.values().to_vec();
    for row in values.chunks_exact_mut(embeddings.columns()) {
        let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            row.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
    }
    values
}

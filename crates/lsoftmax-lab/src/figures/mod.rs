//! Pictures, tables and an HTML page with both, from numbers alone.
//!
//! | | |
//! |---|---|
//! | [`scatter`](fn@scatter) | two-dimensional features by class, one panel per margin: Figure 2 of the paper |
//! | [`ClassAngles`] | the angles within and between classes, in any dimension |
//! | [`Chart`] | curves by step: loss, accuracy, λ, learning rate |
//! | [`Page`] | one HTML page with text, tables and pictures |
//!
//! The same numbers give the same bytes. Nothing here reads files: callers provide the numbers.

use std::path::Path;

use lsoftmax_data::files;

mod angles;
mod axis;
mod curves;
mod embedding;
mod error;
mod legend;
mod page;
mod scatter;
mod svg;

pub use angles::ClassAngles;
pub use axis::Scale;
pub use curves::{Chart, Series};
pub use embedding::Embedding;
pub use error::FigureError;
pub use page::{Figure, Page, Table};
pub(crate) use scatter::MAX_SAMPLES;
pub use scatter::{Panel, scatter};
pub use svg::Picture;

/// Writes a file atomically; missing directories are created.
fn write_file(path: &Path, contents: &[u8]) -> Result<(), FigureError> {
    std::fs::create_dir_all(files::directory_of(path))
        .and_then(|()| files::write_atomic(path, &[contents]))
        .map_err(|source| FigureError::Write { path: path.to_owned(), source })
}

//! Pictures, tables and an HTML page with both, from numbers alone.
//!
//! | | |
//! |---|---|
//! | [`scatter`](fn@scatter) | two-dimensional features by class, one panel per margin: Figure 2 of the paper |
//! | [`psi`](fn@psi) | ψ(θ) of several margins: Figure 3 |
//! | [`decision_boundaries`] | the boundaries of two classes and the margin between them: Figure 4 |
//! | [`margins`](fn@margins) | the boundaries of two classes in angles, one panel per head |
//! | [`heat_maps`](fn@heat_maps) | cosines between classes: Figure 5 |
//! | [`Chart`], [`chart_row`] | curves by step, alone or side by side: loss, accuracy, λ, learning rate; Figures 6 and 7 |
//! | [`forest`](fn@forest) | differences between two kinds of runs under many conditions |
//! | [`confusion_matrix`] | which classes are taken for which |
//! | [`contact_sheet`](fn@contact_sheet) | images side by side |
//! | [`ClassAngles`] | the angles within and between classes, in any dimension |
//! | [`Picture`] | what these draw, to be written as SVG or PNG |
//! | [`Page`] | one HTML page with text, tables and pictures |
//!
//! The same numbers give the same bytes, in PNG too: its font is part of the program. Nothing here reads files: callers provide the numbers.

use std::path::Path;

use lsoftmax_data::files;

mod angles;
mod axis;
mod boundaries;
mod confusion;
mod contact_sheet;
mod curves;
mod embedding;
mod error;
mod forest;
mod heat_maps;
mod legend;
mod margins;
mod page;
mod palette;
mod picture;
mod psi;
mod scatter;
mod svg;

pub use angles::ClassAngles;
pub use axis::Scale;
pub(crate) use axis::group_thousands;
pub use boundaries::{BoundaryPanel, decision_boundaries};
pub use confusion::confusion_matrix;
pub use contact_sheet::{Thumbnail, contact_sheet};
pub use curves::{Chart, Series, chart_row};
pub use embedding::Embedding;
pub use error::FigureError;
pub use forest::{Difference, ForestRow, forest};
pub use heat_maps::{HeatMap, heat_maps};
pub use margins::{angular_margin, margins};
pub use page::{Cell, Content, Figure, Page, Section, Table};
pub use picture::Picture;
pub use psi::psi;
pub(crate) use scatter::MAX_SAMPLES;
pub use scatter::{Panel, scatter};

/// Writes a file atomically; missing directories are created.
fn write_file(path: &Path, contents: &[u8]) -> Result<(), FigureError> {
    std::fs::create_dir_all(files::directory_of(path))
        .and_then(|()| files::write_atomic(path, &[contents]))
        .map_err(|source| FigureError::Write { path: path.to_owned(), source })
}

//! Pictures, tables and the page they are on, from numbers alone.
//!
//! | | |
//! |---|---|
//! | [`scatter`](fn@scatter) | two-dimensional features by class, one panel a margin: Figure 2 of the paper |
//! | [`ClassAngles`] | the angles within and between classes, in any dimension |
//! | [`Chart`] | curves by step: loss, accuracy, λ, learning rate |
//! | [`Report`] | one HTML page with text, tables and pictures |
//!
//! The same numbers give the same bytes. Nothing here knows of a run: what is drawn comes from files.

mod angles;
mod axis;
mod curves;
mod embedding;
mod error;
mod legend;
mod report;
mod scatter;
mod svg;

pub use angles::ClassAngles;
pub use axis::Scale;
pub use curves::{Chart, Series};
pub use embedding::Embedding;
pub use error::{FigureError, ReportError};
pub use report::{Figure, Report, Table};
pub use scatter::{Panel, scatter};
pub use svg::Picture;

//! Tables and figures from records alone.
//!
//! | file | contents |
//! |---|---|
//! | `tables` | the tables: means over seeds, differences, tests |
//! | `result_table` | a table as text or Markdown |
//! | `face_table` | the table of faces |
//! | `documents` | tables between markers in Markdown documents, figures beside them |
//! | `pictures` | the figures |
//! | `gain` | the figure of m = 4 against softmax |
//! | `page` | the page with everything |

mod documents;
mod face_table;
mod gain;
mod page;
mod pictures;
mod result_table;
mod tables;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use documents::Outdated;
pub use result_table::{ResultRow, ResultTable};
pub use tables::table;

use crate::figures::FigureError;
use crate::records::Records;
use crate::run::{RunError, write_atomic};
use crate::two_classes::TwoClassesError;

/// The width of a PNG figure relative to the SVG's.
const PNG_SCALE: f64 = 2.0;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A figure or the page.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// The optimisation behind Figure 4.
    #[error(transparent)]
    TwoClasses(#[from] TwoClassesError),
    /// A document that could not be written.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A document that could not be read, or whose markers are wrong.
    #[error("{}: {reason}", path.display())]
    Document {
        /// The document.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ReportError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Figure(error) => error.is_bad_input(),
            Self::Run(error) => error.is_bad_input(),
            Self::TwoClasses(_) => false,
            Self::Document { .. } => true,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// The number of figures, each as an SVG and a PNG file.
    pub figures: usize,
    /// The documents whose tables changed, and the figures beside them that did.
    pub documents: Vec<PathBuf>,
}

/// Writes the page and the figures to `out`, and the tables into the documents of `root`; figures that `root/docs` has are renewed.
///
/// # Errors
/// When a figure cannot be drawn, a marker is wrong, or a file cannot be written.
pub fn write(records: &Records, root: &Path, out: &Path) -> Result<Written, ReportError> {
    let pictures = pictures::all(records)?;
    for picture in &pictures {
        picture.picture.write(out.join(format!("{}.svg", picture.name)))?;
        picture.picture.write_png(out.join(format!("{}.png", picture.name)), PNG_SCALE)?;
    }
    let outdated = documents::outdated(root, records, &pictures)?;
    let page = out.join("index.html");
    let figures = pictures.len();
    page::page(records, pictures).write(&page)?;
    let mut documents = Vec::new();
    for Outdated { path, text, .. } in outdated {
        write_atomic(&path, &[text.as_bytes()])?;
        documents.push(path);
    }
    Ok(Written { page, figures, documents })
}

/// The documents of `root` with tables that differ from the records, and the figures in `root/docs` that do.
///
/// # Errors
/// When a document cannot be read, a marker is wrong, or a figure cannot be drawn.
pub fn outdated(root: &Path, records: &Records) -> Result<Vec<Outdated>, ReportError> {
    documents::outdated(root, records, &pictures::all(records)?)
}

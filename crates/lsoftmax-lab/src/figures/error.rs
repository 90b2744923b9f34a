//! Errors of pictures, tables and pages.

use std::path::PathBuf;

/// Why a figure cannot be drawn, measured or written.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// Nothing to draw.
    #[error("there are no {0}; give at least one")]
    Empty(&'static str),
    /// An array whose length does not match its shape.
    #[error(
        "the {what} are {found} numbers, but {rows} rows of {columns} are needed; check the width and the labels"
    )]
    Size {
        /// Which array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The expected number of rows.
        rows: usize,
        /// The width of a row.
        columns: usize,
    },
    /// A label without a class.
    #[error(
        "sample {sample} has the label {label}, but there are {classes} classes, counted from 0"
    )]
    Label {
        /// The sample.
        sample: usize,
        /// Its label.
        label: u32,
        /// The number of rows of the weights.
        classes: usize,
    },
    /// A NaN or an infinity.
    #[error("the {what} have {value} in row {row}, column {column}; all must be finite")]
    NotFinite {
        /// Which array.
        what: &'static str,
        /// The first such row.
        row: usize,
        /// The first such column of it.
        column: usize,
        /// The value.
        value: f32,
    },
    /// A panel that is not two-dimensional.
    #[error("the features of panel \"{panel}\" have {columns} dimensions; only two can be drawn")]
    Dimensions {
        /// The panel's title.
        panel: String,
        /// The features' width.
        columns: usize,
    },
    /// A panel whose number of classes differs from the legend's.
    #[error(
        "panel \"{panel}\" has {found} classes, but {names} names are given; all panels share one legend"
    )]
    Classes {
        /// The panel's title.
        panel: String,
        /// Its number of classes.
        found: usize,
        /// The number of names.
        names: usize,
    },
    /// Samples of one class only.
    #[error("all samples belong to one class; angles between classes need samples of at least two")]
    OneClass,
    /// A series without finite values.
    #[error("series \"{0}\" has no finite value; there is nothing to draw")]
    NoValues(String),
    /// A value that is not positive on a logarithmic axis.
    #[error(
        "series \"{series}\" is {value} at {at}, which a logarithmic axis cannot show; use a linear one"
    )]
    Logarithm {
        /// The series' name.
        series: String,
        /// Where, such as "step 3".
        at: String,
        /// The value.
        value: f64,
    },
    /// A table row whose number of cells differs from the head's.
    #[error(
        "row {row} of table \"{table}\" has {found} cells, but its head has {expected}; give one cell per column"
    )]
    TableRow {
        /// The table's caption.
        table: String,
        /// The row, counted from 1.
        row: usize,
        /// Its number of cells.
        found: usize,
        /// The number of cells of the head.
        expected: usize,
    },
    /// A square matrix is expected.
    #[error("panel \"{panel}\" has {found} numbers, but {classes} classes need {}", classes * classes)]
    Matrix {
        /// The panel's title.
        panel: String,
        /// Its number of values.
        found: usize,
        /// The number of classes.
        classes: usize,
    },
    /// A number that is not a cosine.
    #[error(
        "panel \"{panel}\" has {value} in row {row}, column {column}; cosines are from −1 to 1"
    )]
    Cosine {
        /// The panel's title.
        panel: String,
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A scale at which a picture has no pixels or too many.
    #[error("a PNG at scale {0} would be empty or larger than 16,384 pixels; use one near 2")]
    Scale(f64),
    /// An anchor that is empty, is used twice or has characters that links cannot hold.
    #[error("the anchor \"{0}\" is not unique or not made of letters, digits, - and _")]
    Anchor(String),
    /// A link that leads nowhere, or away from the page's directory.
    #[error("the link \"{0}\" is neither an anchor of the page (#name) nor a relative path")]
    Link(String),
    /// A file that could not be written.
    #[error(
        "{}: cannot be written ({source}); check the directory, its permissions and the space left", path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl FigureError {
    /// Whether different input would help; otherwise the machine failed.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }
}

//! Why there is no picture, in sentences.

use crate::arrays::WriteError;

/// Why numbers cannot be drawn or summed up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FigureError {
    /// Nothing to draw.
    #[error("there are no {0}; give at least one")]
    Empty(&'static str),
    /// An array whose length does not fit its width.
    #[error(
        "the {what} are {found} numbers, but {rows} rows of {columns} are needed; check the width and the labels"
    )]
    Size {
        /// Which array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The rows it should have.
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
        /// The rows of the weights.
        classes: usize,
    },
    /// A NaN or an infinity.
    #[error(
        "the {what} have {value} in row {row}, column {column}; only finite numbers have a place and an angle"
    )]
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
    /// A panel that is not flat.
    #[error("the features of panel \"{panel}\" have {columns} dimensions; only two can be drawn")]
    Dimensions {
        /// The panel's title.
        panel: String,
        /// The features' width.
        columns: usize,
    },
    /// A panel with other classes than the legend.
    #[error(
        "panel \"{panel}\" has {found} classes, but {names} names are given; all panels share one legend"
    )]
    Classes {
        /// The panel's title.
        panel: String,
        /// Its classes.
        found: usize,
        /// The names.
        names: usize,
    },
    /// Nothing to be at an angle to.
    #[error("all samples are of one class; angles between classes need samples of at least two")]
    OneClass,
    /// A series without a number.
    #[error("series \"{0}\" has no finite value; there is nothing to draw")]
    NoValues(String),
    /// A number without a logarithm.
    #[error(
        "series \"{series}\" is {value} at step {step}, which has no place on a logarithmic axis; take a linear one"
    )]
    Logarithm {
        /// The series' name.
        series: String,
        /// The step.
        step: u64,
        /// The value.
        value: f64,
    },
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A row with other cells than the head has.
    #[error(
        "row {row} of table \"{table}\" has {found} cells, but its head has {expected}; give one a column"
    )]
    Row {
        /// The table's caption.
        table: String,
        /// The row, counted from 1.
        row: usize,
        /// Its cells.
        found: usize,
        /// The head's cells.
        expected: usize,
    },
    /// The page could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

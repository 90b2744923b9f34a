//! Features of images, one row per image.

/// Features of images: rows of equal length, all finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    columns: usize,
    values: Vec<f32>,
}

/// Why numbers are not embeddings.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddingsError {
    /// The number of values is not a multiple of the number of columns.
    #[error("{values} numbers cannot be divided into rows of {columns}")]
    Shape {
        /// The number of values.
        values: usize,
        /// The length of a row.
        columns: usize,
    },
    /// A number that is not finite.
    #[error("number {column} of row {row} is {value}; only finite numbers can be compared")]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The number.
        value: f32,
    },
}

impl Embeddings {
    /// Embeddings of `columns` numbers each, row by row.
    ///
    /// # Errors
    /// When the numbers do not fill rows, or one of them is not finite.
    pub fn new(columns: usize, values: Vec<f32>) -> Result<Self, EmbeddingsError> {
        if columns == 0 || !values.len().is_multiple_of(columns) {
            return Err(EmbeddingsError::Shape { values: values.len(), columns });
        }
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(EmbeddingsError::NotFinite {
                row: index / columns,
                column: index % columns,
                value: values[index],
            });
        }
        Ok(Self { columns, values })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// The length of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// A row; panics if it is out of range.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// All numbers, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The rows in f64.
    pub(crate) fn to_f64(&self) -> Vec<Vec<f64>> {
        let row = |row: &[f32]| row.iter().map(|value| f64::from(*value)).collect();
        self.values.chunks_exact(self.columns).map(row).collect()
    }
}

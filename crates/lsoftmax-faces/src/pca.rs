//! Principal components of the training folds.

use faer::{Mat, Side};

/// Projects rows onto the principal components of some of them.
pub(crate) struct Pca {
    /// Columns x dimension, orthonormal.
    directions: Mat<f64>,
    mean: Vec<f64>,
    /// The fraction of the variance that the components have.
    pub explained: f64,
}

impl Pca {
    /// The rows minus the mean, in the principal directions.
    pub fn project(&self, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let centred = Mat::from_fn(rows.len(), self.mean.len(), |row, column| {
            rows[row][column] - self.mean[column]
        });
        let projected = &centred * &self.directions;
        let values =
            |row: usize| (0..projected.ncols()).map(|column| projected[(row, column)]).collect();
        (0..rows.len()).map(values).collect()
    }
}

/// Sums and products of the rows of one fold, relative to a common shift. A fold's training set is the sum of all other
/// folds', so that no product is computed twice.
pub(crate) struct Moments {
    count: usize,
    sums: Vec<f64>,
    products: Mat<f64>,
}

impl Moments {
    /// Of rows, by index, as often as each is named.
    pub fn of(rows: &[Vec<f64>], indices: &[usize], shift: &[f64]) -> Self {
        let shifted = Mat::from_fn(indices.len(), shift.len(), |index, column| {
            rows[indices[index]][column] - shift[column]
        });
        let sum = |column: usize| (0..indices.len()).map(|row| shifted[(row, column)]).sum();
        Self {
            count: indices.len(),
            sums: (0..shift.len()).map(sum).collect(),
            products: shifted.transpose() * &shifted,
        }
    }

    /// The principal components of several sets together; `None` if the decomposition does not converge.
    pub fn components(sets: &[&Self], shift: &[f64], dimension: usize) -> Option<Pca> {
        let width = shift.len();
        let count = sets.iter().map(|set| set.count).sum::<usize>() as f64;
        let means: Vec<f64> = (0..width)
            .map(|column| sets.iter().map(|set| set.sums[column]).sum::<f64>() / count)
            .collect();
        let covariance = Mat::from_fn(width, width, |row, column| {
            let product: f64 = sets.iter().map(|set| set.products[(row, column)]).sum();
            product / count - means[row] * means[column]
        });
        let eigen = covariance.self_adjoint_eigen(Side::Lower).ok()?;
        // In ascending order.
        let variances: Vec<f64> =
            (0..width).map(|index| eigen.S()[width - 1 - index].max(0.0)).collect();
        let vectors = eigen.U();
        let directions =
            Mat::from_fn(width, dimension, |row, column| vectors[(row, width - 1 - column)]);
        let total: f64 = variances.iter().sum();
        let kept: f64 = variances[..dimension].iter().sum();
        let mean = means.iter().zip(shift).map(|(mean, shift)| mean + shift).collect();
        Some(Pca { directions, mean, explained: if total > 0.0 { kept / total } else { 1.0 } })
    }
}

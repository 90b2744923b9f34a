//! Features, labels and class weights.

use super::FigureError;

/// Features, labels and class weights that belong together, validated.
///
/// ```
/// use lsoftmax_lab::figures::Embedding;
/// let (features, weights) = ([1.0, 0.0, 0.0, 2.0], [3.0, 0.0, 0.0, 1.0]);
/// let embedding = Embedding::new(&features, &[0, 1], &weights, 2)?;
/// assert_eq!((embedding.samples(), embedding.classes()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'a> {
    features: &'a [f32],
    labels: &'a [u32],
    weights: &'a [f32],
    columns: usize,
}

impl<'a> Embedding<'a> {
    /// Takes features `[samples, columns]`, one label per sample, and weights `[classes, columns]`, row by row.
    ///
    /// # Errors
    /// When there are no samples or classes, lengths do not match, a label has no class, or a number is
    /// not finite.
    pub fn new(
        features: &'a [f32],
        labels: &'a [u32],
        weights: &'a [f32],
        columns: usize,
    ) -> Result<Self, FigureError> {
        for (what, length) in
            [("samples", labels.len()), ("classes", weights.len()), ("columns", columns)]
        {
            if length == 0 {
                return Err(FigureError::Empty(what));
            }
        }
        let classes = weights.len().div_ceil(columns);
        for (what, values, rows) in
            [("features", features, labels.len()), ("weights", weights, classes)]
        {
            if rows.checked_mul(columns) != Some(values.len()) {
                return Err(FigureError::Size { what, found: values.len(), rows, columns });
            }
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(FigureError::NotFinite {
                    what,
                    row: at / columns,
                    column: at % columns,
                    value: values[at],
                });
            }
        }
        if let Some(sample) = labels.iter().position(|label| *label as usize >= classes) {
            return Err(FigureError::Label { sample, label: labels[sample], classes });
        }
        Ok(Self { features, labels, weights, columns })
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.weights.len() / self.columns
    }

    /// The width of features and weights.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The features of a sample.
    pub(crate) fn feature(&self, sample: usize) -> &'a [f32] {
        &self.features[sample * self.columns..][..self.columns]
    }

    /// The weights of a class.
    pub(super) fn weight(&self, class: usize) -> &'a [f32] {
        &self.weights[class * self.columns..][..self.columns]
    }

    /// The class of a sample.
    pub(super) fn label(&self, sample: usize) -> usize {
        self.labels[sample] as usize
    }

    /// The samples of each class, in order.
    pub(super) fn by_class(&self) -> Vec<Vec<usize>> {
        let mut samples = vec![Vec::new(); self.classes()];
        for sample in 0..self.samples() {
            samples[self.label(sample)].push(sample);
        }
        samples
    }

    /// At most `most` samples, equally many of each class and evenly spaced in sample order: those of
    /// each class.
    pub(crate) fn subsample(&self, most: usize) -> Vec<Vec<usize>> {
        let quota = (most / self.classes()).max(1);
        let spaced = |samples: Vec<usize>| {
            let count = samples.len().min(quota);
            (0..count).map(|index| samples[index * samples.len() / count]).collect()
        };
        self.by_class().into_iter().map(spaced).collect()
    }
}

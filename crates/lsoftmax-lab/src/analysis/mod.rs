//! What a model does: scores by class, confusions, nearest neighbours, the images that it gets most wrong.
//!
//! | | |
//! |---|---|
//! | [`Classification`] | top-k accuracy; precision, recall and F1 of every class; the confusion matrix |
//! | [`Retrieval`] | recall@k and mean average precision of features as a search index |
//! | [`WrongImage`] | the images that are furthest from being classified correctly |
//! | [`Analysis`] | all of them for the model of a run, as a page, text or pictures |

mod classification;
mod page;
mod retrieval;
mod wrong_images;

pub use classification::{ClassScores, Classification, ClassificationSums, ConfusedPair, TopK};
pub use retrieval::Retrieval;
pub use wrong_images::WrongImage;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax_comm::Communicator;
use lsoftmax_data::{DataDir, DataSource, Images, Reading, Split};
use serde::Serialize;

use crate::evaluate::{
    Evaluation, EvaluationSums, ImageOutput, LogitLengths, for_each_image_watched,
};
use crate::figures::{FigureError, Picture, confusion_matrix, contact_sheet};
use crate::inference::{InferenceError, images_to_evaluate};
use crate::model_file::TrainedModel;
use wrong_images::WrongImages;

/// What to compute besides the classification.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisOptions {
    /// k of the top-k accuracy.
    pub top_k: usize,
    /// Whether to search the nearest neighbours of every image, whose cost grows with the square of the
    /// number of images.
    pub retrieval: bool,
    /// How many of the most wrong images to name.
    pub most_wrong: usize,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        Self { top_k: 5, retrieval: false, most_wrong: 25 }
    }
}

/// What an analysis does with images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalysisPhase {
    /// Reads those of a folder.
    Reading,
    /// Evaluates them.
    Evaluating,
}

/// Is told the phase, the number of images done and that of all, and may stop the analysis.
pub type WatchAnalysis<'a> = dyn FnMut(AnalysisPhase, usize, usize) -> ControlFlow<()> + 'a;

/// How well the model of a run classifies a data set.
#[derive(Clone, Debug, Serialize)]
pub struct EvaluationReport {
    /// The data.
    pub data: DataSource,
    /// The part of the data that was used: `train`, `test`, or `all` of a folder.
    pub split: &'static str,
    /// Error, loss and angle.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// Scores by class, and confusions.
    #[serde(flatten)]
    pub classification: Classification,
    /// The features as a search index, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<Retrieval>,
    /// The most wrong images, the worst first.
    pub wrong_images: Vec<WrongImage>,
}

/// What a model does with the images of a data set.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The numbers.
    pub report: EvaluationReport,
    /// The model's classes.
    pub class_names: Vec<String>,
    images: Arc<Images>,
}

impl Analysis {
    /// Evaluates the model of a run on a data set, by default the one it was trained on. Classes are
    /// matched by name. Several ranks share the work; each has the result.
    ///
    /// # Errors
    /// When the model or the images cannot be read, or do not fit together, or `watch` stops the analysis.
    #[allow(clippy::too_many_arguments, reason = "the choices of the command")]
    pub fn of_run(
        run: &Path,
        source: Option<&DataSource>,
        split: Split,
        data: &DataDir,
        device: &Device,
        ranks: &Arc<dyn Communicator>,
        options: AnalysisOptions,
        watch: &mut WatchAnalysis<'_>,
    ) -> Result<Self, InferenceError> {
        let trained = TrainedModel::read(run, device)?.with_ranks(ranks);
        let TrainedModel { model, description } = trained;
        let mut read = |Reading { read, total }| watch(AnalysisPhase::Reading, read, total);
        let (split, images) = images_to_evaluate(&description, source, split, data, &mut read)?;
        let (count, images) = (images.len(), Arc::new(images));
        let (lengths, mut sums) = (LogitLengths::of(&model), EvaluationSums::default());
        let mut classes = ClassificationSums::new(description.classes, options.top_k);
        let mut wrong = WrongImages::default();
        let mut features = Vec::new();
        let visit = |output: &ImageOutput| {
            sums.add(lengths.classified(output));
            classes.add(output.label, &output.logits);
            wrong.add(output);
            if options.retrieval {
                features.extend_from_slice(&output.features);
            }
        };
        let mut done = |done| watch(AnalysisPhase::Evaluating, done, count);
        for_each_image_watched(&model, &images, &description.mean, visit, &mut done)?;
        let retrieval = options
            .retrieval
            .then(|| Retrieval::of(&features, description.network.features.size, images.labels()));
        let report = EvaluationReport {
            data: source.unwrap_or(&description.data).clone(),
            split,
            evaluation: sums.evaluation(),
            classification: classes.classification(&description.class_names),
            retrieval: retrieval.flatten(),
            wrong_images: wrong.most_wrong(options.most_wrong, &images, &description.class_names),
        };
        Ok(Self { report, class_names: description.class_names, images })
    }

    /// The confusion matrix as a picture; `None` with too many classes to draw.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn confusion_picture(&self) -> Result<Option<Picture>, FigureError> {
        let counts = &self.report.classification.confusion;
        if counts.is_empty() {
            return Ok(None);
        }
        confusion_matrix(counts, &self.class_names).map(Some)
    }

    /// The most wrong images side by side; `None` if every image is classified correctly.
    ///
    /// # Errors
    /// When they cannot be drawn.
    pub fn contact_sheet(&self) -> Result<Option<Picture>, FigureError> {
        if self.report.wrong_images.is_empty() {
            return Ok(None);
        }
        let thumbnails: Vec<_> =
            self.report.wrong_images.iter().map(|wrong| wrong.thumbnail(&self.images)).collect();
        contact_sheet(&thumbnails, self.images.shape()).map(Some)
    }
}

//! What a model does, on one page.

use std::path::{Path, PathBuf};

use super::{Analysis, ClassScores, ConfusedPair, EvaluationReport, Retrieval, TopK, WrongImage};
use crate::figures::{Cell, Figure, Page, Section, Table};
use crate::plot::{PlotError, curves};
use crate::run::METRICS;

impl Analysis {
    /// A page with the scores, the confusion matrix, the most wrong images and the curves of the run's
    /// training; `command` is what makes the page again.
    ///
    /// # Errors
    /// When the log of the run is damaged, or a picture cannot be drawn.
    pub fn page(&self, run: &Path, command: String) -> Result<Page, PlotError> {
        let EvaluationReport { data, split, evaluation, classification, .. } = &self.report;
        let mut sections = vec![self.scores()];
        let mut confusions = Section::new("confusions", "Confusions");
        if let Some(picture) = self.confusion_picture()? {
            confusions = confusions.figure(Figure::new(
                "Images by label (row) and predicted class (column). The colour is the share of the row.",
                picture,
            ));
        }
        if !classification.confused.is_empty() {
            confusions = confusions.table(pairs(&classification.confused));
        }
        if !confusions.content.is_empty() {
            sections.push(confusions);
        }
        sections
            .push(Section::new("classes", "Classes").table(per_class(&classification.per_class)));
        if let Some(sheet) = self.contact_sheet()? {
            let section = Section::new("wrong-images", "Most wrong images")
                .figure(Figure::new(
                    "Label and predicted class, with the probability of the predicted class. The \
                     images whose own class is least probable come first.",
                    sheet,
                ))
                .table(wrong_images(&self.report.wrong_images));
            sections.push(section);
        }
        // A model can be copied without its log.
        if run.join(METRICS).is_file() {
            let runs = [PathBuf::from(run)];
            sections.push(Section { heading: "Training".into(), ..curves(&runs)? });
        }
        let name = run.file_name().unwrap_or(run.as_os_str()).to_string_lossy();
        Ok(Page {
            title: format!("{name} on {data}"),
            introduction: vec![format!(
                "{:.2} % of the {} images ({split}) are classified incorrectly.",
                evaluation.error, evaluation.images
            )],
            sections,
            command,
        })
    }

    fn scores(&self) -> Section {
        let EvaluationReport { evaluation, classification, retrieval, .. } = &self.report;
        let mut rows = vec![
            ["error".to_owned(), format!("{:.2} %", evaluation.error)],
            ["cross-entropy".to_owned(), format!("{:.4}", evaluation.loss)],
            ["mean angle to the class".to_owned(), format!("{:.1}°", evaluation.angle)],
        ];
        rows.extend(
            classification
                .top
                .iter()
                .map(|TopK { k, accuracy }| [format!("top-{k} accuracy"), percent(*accuracy)]),
        );
        let means = [
            ("precision", classification.precision),
            ("recall", classification.recall),
            ("F1", classification.f1),
        ];
        rows.extend(
            means.map(|(name, score)| [format!("{name}, mean of classes"), percent(score)]),
        );
        if let Some(Retrieval { recall_at_1, recall_at_5, mean_average_precision, .. }) = retrieval
        {
            rows.push(["nearest image of the same class (recall@1)".into(), percent(*recall_at_1)]);
            rows.push(["one of the five nearest (recall@5)".into(), percent(*recall_at_5)]);
            rows.push(["mean average precision".into(), percent(*mean_average_precision)]);
        }
        Section::new("scores", "Scores").table(Table {
            head: ["", "value"].map(String::from).to_vec(),
            rows: rows.into_iter().map(|row| row.map(Cell::from).to_vec()).collect(),
            ..Table::default()
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn table(caption: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
    Table {
        caption: caption.into(),
        head: head.iter().map(|name| (*name).into()).collect(),
        rows: rows.map(|row| row.into_iter().map(Cell::from).collect()).collect(),
        ..Table::default()
    }
}

fn per_class(classes: &[ClassScores]) -> Table {
    let rows = classes.iter().map(|scores| {
        let ClassScores { name, images, predicted, precision, recall, f1 } = scores;
        let counts = [images, predicted].map(u32::to_string);
        [
            vec![name.clone()],
            counts.to_vec(),
            [precision, recall, f1].map(|it| percent(*it)).to_vec(),
        ]
        .concat()
    });
    let head = ["class", "images", "predicted", "precision", "recall", "F1"];
    table("Scores by class", &head, rows)
}

fn pairs(pairs: &[ConfusedPair]) -> Table {
    let rows = pairs.iter().map(|ConfusedPair { label, predicted, images }| {
        vec![label.clone(), predicted.clone(), images.to_string()]
    });
    table("Most confused classes", &["label", "predicted", "images"], rows)
}

fn wrong_images(images: &[WrongImage]) -> Table {
    let rows = images.iter().map(|wrong| {
        let name = wrong.file.clone().unwrap_or_else(|| wrong.index.to_string());
        vec![
            name,
            wrong.label.clone(),
            percent(wrong.label_probability),
            wrong.predicted.clone(),
            percent(wrong.probability),
        ]
    });
    let head = ["image", "label", "its probability", "predicted", "its probability"];
    table("", &head, rows)
}

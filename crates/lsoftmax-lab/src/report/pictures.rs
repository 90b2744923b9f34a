//! The paper's figures, from records.

use std::collections::BTreeMap;

use lsoftmax::Margin;
use lsoftmax_data::DataSource;
use lsoftmax_faces::Roc;

use super::ReportError;
use super::gain::gain;
use super::tables::{RowRecords, by_row, grouped, row_label};
use crate::faces::roc_figure;
use crate::figures::{
    BoundaryPanel, Chart, Embedding, FigureError, HeatMap, Panel, Picture, Scale, Series,
    chart_row, decision_boundaries, heat_maps, margins, psi, scatter,
};
use crate::objective::BatchMetrics;
use crate::records::{Record, Records};
use crate::reproduce::{Experiment, Row};
use crate::run::Metric;
use crate::test_details::Plane;

/// A figure of the report.
pub(super) struct NamedPicture {
    /// The name of its files.
    pub name: String,
    /// The experiment that it belongs to.
    pub experiment: &'static str,
    /// The text below it.
    pub caption: String,
    pub picture: Picture,
}

/// Name, caption and picture.
pub(super) type Drawn = (String, String, Picture);

/// All figures for which there are records.
pub(super) fn all(records: &Records) -> Result<Vec<NamedPicture>, ReportError> {
    let mut pictures = Vec::new();
    for experiment in &Experiment::ALL {
        let drawn = match experiment.name {
            "fig2" => features(experiment, records)?,
            "heads" => [vec![margins_of(experiment)?], features(experiment, records)?].concat(),
            "fig3" => vec![shape_of_psi()?],
            "fig4" => vec![two_classes()?],
            "fig5" => similarity(experiment, records)?,
            "table5" => verification(experiment, records)?,
            "fig6" | "fig7" => curves(experiment, records)?,
            "lambda" | "lambda-full" => schedules(experiment, records)?,
            "gain" => gain(records)?.into_iter().collect(),
            _ => Vec::new(),
        };
        let named = |(name, caption, picture)| NamedPicture {
            name,
            experiment: experiment.name,
            caption,
            picture,
        };
        pictures.extend(drawn.into_iter().map(named));
    }
    Ok(pictures)
}

/// Rows, each with a run of it.
type Runs<'a> = Vec<(&'a Row, &'a Record)>;

/// A finished run with the lowest seed for each row of a group, by length.
fn by_length<'a>(group: &'a [Row], records: &'a Records) -> BTreeMap<u64, Runs<'a>> {
    let mut lengths = BTreeMap::<u64, Runs>::new();
    for RowRecords { row, steps, records } in by_row(group, records) {
        if let Some(record) = records.into_iter().find(|record| record.summary().is_some()) {
            lengths.entry(steps).or_default().push((row, record));
        }
    }
    lengths
}

/// Runs that can be compared: in every group those of the length that most rows have, and of several the longest.
fn comparable<'a>(rows: &'a [Row], records: &'a Records) -> Runs<'a> {
    let of_group = |group| {
        let lengths = by_length(group, records);
        lengths.into_values().max_by_key(Vec::len).unwrap_or_default()
    };
    rows.chunk_by(|a, b| a.group == b.group).flat_map(of_group).collect()
}

/// Table 5: true by false accept rates, for every length.
fn verification(experiment: &Experiment, records: &Records) -> Result<Vec<Drawn>, FigureError> {
    let rows = experiment.rows();
    let mut drawn = Vec::new();
    for (steps, runs) in by_length(&rows, records) {
        let curves: Vec<(String, Roc)> = runs
            .into_iter()
            .filter_map(|(row, record)| Some((row, record.lfw.as_ref()?)))
            .filter(|(_, lfw)| !lfw.roc.is_empty())
            .map(|(row, lfw)| (row_label(row, &rows), Roc { points: lfw.roc.clone() }))
            .collect();
        if curves.is_empty() {
            continue;
        }
        let caption = format!(
            "The pairs of LFW after {} steps, by the paper's protocol: principal components, cosine",
            grouped(steps)
        );
        let figure = roc_figure("Verification on LFW", &curves)?;
        drawn.push((format!("table5-roc-{steps}"), caption, figure));
    }
    Ok(drawn)
}

/// Figure 2: features in the plane.
fn features(experiment: &Experiment, records: &Records) -> Result<Vec<Drawn>, FigureError> {
    let rows = experiment.rows();
    let planes: Vec<(String, Vec<f32>, Vec<f32>, &Plane)> = comparable(&rows, records)
        .into_iter()
        .filter_map(|(row, record)| {
            let plane = record.test()?.plane.as_ref()?;
            let accuracy = 100.0 - record.test_error()?;
            let (name, _) = row.name.split_once(", s =").unwrap_or((&row.name, ""));
            let title = format!("{name}: {accuracy:.2} %");
            Some((title, plane.features.concat(), plane.weights.concat(), plane))
        })
        .collect();
    if planes.is_empty() {
        return Ok(Vec::new());
    }
    let mut panels = Vec::new();
    for (title, features, weights, plane) in &planes {
        let embedding = Embedding::new(features, &plane.labels, weights, 2)?;
        panels.push(Panel { title: title.clone(), embedding });
    }
    let digits: Vec<String> = (0..10).map(|digit| digit.to_string()).collect();
    let caption = "Features of MNIST's test images, at most 200 of each digit. Lines are the weights of the classes; the number is the test accuracy.";
    Ok(vec![(experiment.name.into(), caption.into(), scatter(&panels, &digits)?)])
}

/// The boundaries of the heads that are compared, with the margins of the whole network.
fn margins_of(experiment: &Experiment) -> Result<Drawn, FigureError> {
    let rows = experiment.rows();
    let last = rows.last().map_or("", |row| &row.group);
    let heads = rows.iter().filter(|row| row.group == last).map(|row| row.recipe.head);
    let caption = "Two classes by the angles to them. A loss is content with class 1 above the first line and with class 2 below the second; between them is the margin. Its size is that of two classes 90° apart, whose features are on the dotted diagonal. Dotted boundaries: |W₁| = 1.3 |W₂|, where norms are free.";
    Ok(("margins".into(), caption.into(), margins(&heads.collect::<Vec<_>>())?))
}

/// Figure 3.
fn shape_of_psi() -> Result<Drawn, FigureError> {
    let margins = [1.0, 2.0, 3.0, 4.0].map(|m| Margin::new(m).expect("a margin of at least 1"));
    let caption = "ψ(θ), which takes the place of cos θ for the label's class. The larger m, the smaller the angle that gives the same value.";
    Ok(("fig3".into(), caption.into(), psi(&margins)?))
}

/// Figure 4: two classes, optimised here and now.
fn two_classes() -> Result<Drawn, ReportError> {
    let two = Margin::new(2.0).expect("a margin of at least 1");
    let panels = BoundaryPanel::softmax_and(two)?;
    let caption = "Two classes, trained by gradient descent with the ratio of |W₁| to |W₂| fixed at 1, 1.7 and 1/1.7. Softmax has one decision boundary, L-Softmax one for each class, and between them the angular margin.";
    Ok(("fig4".into(), caption.into(), decision_boundaries(&panels)?))
}

/// Figure 5: the mean cosine between features of two classes.
fn similarity(experiment: &Experiment, records: &Records) -> Result<Vec<Drawn>, FigureError> {
    let rows = experiment.rows();
    let mut drawn = Vec::new();
    for group in rows.chunk_by(|a, b| a.group == b.group) {
        let DataSource::Set(set) = &group[0].recipe.data else { continue };
        let panels: Vec<HeatMap> = comparable(group, records)
            .iter()
            .filter_map(|(row, record)| {
                let title = format!("{}, {} steps", row.label(), grouped(record.recipe.steps));
                Some(HeatMap { title, values: record.test()?.cosines.concat() })
            })
            .collect();
        if panels.is_empty() {
            continue;
        }
        let caption = format!(
            "{}: the mean cosine between the features of two test images, by their classes. The diagonal shows how compact a class is, the rest how well two are separated.",
            group[0].group
        );
        let classes: Vec<String> = set.class_names.iter().map(|name| (*name).into()).collect();
        let name = format!("fig5-{}", group[0].recipe.name);
        drawn.push((name, caption, heat_maps(&panels, &classes)?));
    }
    Ok(drawn)
}

/// A value of a training line of the log, from its λ and metrics.
type ValueOfLine = fn(Option<f64>, &BatchMetrics) -> Option<f64>;

/// λ and the training accuracy by step, for the runs with m = 4 of every group.
fn schedules(experiment: &Experiment, records: &Records) -> Result<Vec<Drawn>, FigureError> {
    let rows = experiment.rows();
    let mut drawn = Vec::new();
    for group in rows.chunk_by(|a, b| a.group == b.group) {
        let found: Vec<_> = comparable(group, records)
            .into_iter()
            .filter(|(row, _)| row.recipe.head.margin().value() == 4.0)
            .collect();
        let chart = |title: &str, y_title: &str, scale, value: ValueOfLine| {
            let point = |metric: &Metric| match metric {
                Metric::Training { step, means, lambda, .. } => {
                    value(*lambda, means).map(|value| (*step, value))
                }
                _ => None,
            };
            // A logarithmic axis has no 0.
            let shown = |(_, value): &(u64, f64)| scale == Scale::Linear || *value > 0.0;
            let series = found.iter().map(|(row, record)| {
                let points = record.log.iter().filter_map(point).filter(shown);
                Series::by_step(row.label(), points)
            });
            Chart {
                title: title.into(),
                x_title: "step".into(),
                y_title: y_title.into(),
                scale,
                series: series.filter(|series| !series.points.is_empty()).collect(),
                ..Chart::default()
            }
        };
        let charts = [
            chart("λ", "λ", Scale::Log, |lambda, _| lambda),
            chart("Training accuracy", "accuracy, %", Scale::Linear, |_, means| {
                Some(100.0 * means.accuracy)
            }),
        ];
        if charts.iter().any(|chart| chart.series.is_empty()) {
            continue;
        }
        let name = format!("{}-{}", experiment.name, group[0].recipe.name);
        let caption = format!(
            "{}, m = 4: λ and the training accuracy by step, one seed each.",
            group[0].group
        );
        drawn.push((name, caption, chart_row(&charts)?));
    }
    Ok(drawn)
}

/// The part of a run, at its end, whose errors have charts of their own: it begins soon after the first drop of the paper's learning rate.
const LATE: f64 = 0.7;

/// Figures 6 and 7: errors by iteration, of the training images and of the test images; below, their ends, where the curves are close.
fn curves(experiment: &Experiment, records: &Records) -> Result<Vec<Drawn>, FigureError> {
    let rows = experiment.rows();
    let found = comparable(&rows, records);
    let training = |metric: &Metric| match metric {
        Metric::Training { step, means, .. } => Some((*step, 100.0 * (1.0 - means.accuracy))),
        _ => None,
    };
    let test = |metric: &Metric| match metric {
        Metric::Test { step, error, .. } => Some((*step, *error)),
        _ => None,
    };
    let chart = |title: &str, point: &dyn Fn(&Metric) -> Option<(u64, f64)>, from: f64| Chart {
        title: title.into(),
        x_title: "iteration".into(),
        y_title: "error, %".into(),
        scale: Scale::Linear,
        series: found
            .iter()
            .map(|(row, record)| {
                let first = from * record.recipe.steps as f64;
                let points = record.log.iter().filter_map(point);
                Series::by_step(row.label(), points.filter(|(step, _)| *step as f64 >= first))
            })
            .filter(|series| !series.points.is_empty())
            .collect(),
        ..Chart::default()
    };
    let charts: Vec<Chart> = [
        chart("Training error", &training, 0.0),
        chart("Test error", &test, 0.0),
        chart("Training error at the end", &training, LATE),
        chart("Test error at the end", &test, LATE),
    ]
    .into_iter()
    .filter(|chart| !chart.series.is_empty())
    .collect();
    if charts.is_empty() {
        return Ok(Vec::new());
    }
    let steps = found.iter().map(|(_, record)| record.recipe.steps).max().unwrap_or_default();
    let caption = format!(
        "The share of wrong images, of the training batches and of all test images, in {} steps. One seed each; nothing was selected by the test curve.",
        grouped(steps)
    );
    Ok(vec![(experiment.name.into(), caption, chart_row(&charts)?)])
}

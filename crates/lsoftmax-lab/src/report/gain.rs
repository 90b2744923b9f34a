//! What a margin gains: m = 4 beside softmax in every table, in one figure.

use super::pictures::Drawn;
use super::tables::{RowRecords, by_row, common_seeds, grouped, softmax_of};
use crate::evaluate::Evaluation;
use crate::figures::{Difference, FigureError, ForestRow, forest};
use crate::head::HeadKind;
use crate::recipe::Lambda;
use crate::records::{Record, Records, Sample, standard_error_of_pairs, standard_error_of_rates};
use crate::reproduce::{Experiment, Row, TIED};

/// The tables whose rows are compared: the paper's networks and data sets, and small ones with the same λ. The other studies are of
/// other λ, networks and heads; faces on LFW have another measure.
const TABLES: [&str; 7] =
    ["table2", "table3", "table4", "fig6", "distance", "lambda", "regularisation"];
/// 95 % of a normal distribution are within so many standard deviations.
const WITHIN: f64 = 1.96;
const CAPTION: &str = "Runs with m = 4 and the recipe's λ or, where it says so, the automatic one, each beside the run of softmax with the same seed and settings: a dot for each seed, and a bar at the mean of several. Left of 0 the margin has fewer errors. \
A line is the 95 % interval of the images only: another seed moves the dot as well, as rows with several show. Errors are of held-out images where there are more of them than test images, and the interval is then an upper estimate. \
The last column is softmax's accuracy on its last training batches.";

/// The figure, if there is anything to compare.
pub(super) fn gain(records: &Records) -> Result<Option<Drawn>, FigureError> {
    let mut sets: Vec<String> = Vec::new();
    let mut seen: Vec<Vec<String>> = Vec::new();
    let (mut compared, mut diverged) = (Vec::new(), Vec::new());
    for table in TABLES {
        let rows = Experiment::named(table).expect("the figure's tables are experiments").rows();
        let all = by_row(&rows, records);
        for entry in all.iter().filter(|entry| is_compared(entry.row, table)) {
            let Some(softmax) = softmax_of(&all, entry) else { continue };
            let pairs: Vec<_> = common_seeds(&entry.records, &softmax.records).collect();
            let ids = pairs.iter().map(|(record, _)| record.id.clone()).collect();
            // Studies share runs with tables.
            if seen.contains(&ids) {
                continue;
            }
            seen.push(ids);
            let set = entry.row.recipe.data.to_string();
            let colour = sets.iter().position(|other| *other == set).unwrap_or_else(|| {
                sets.push(set);
                sets.len() - 1
            });
            if !pairs.is_empty() && pairs.iter().all(|(record, _)| record.summary().is_none()) {
                diverged.push(label(entry));
            }
            compared.extend(forest_row(label(entry), colour, &pairs));
        }
    }
    if compared.is_empty() {
        return Ok(None);
    }
    // The order of the tables within a data set.
    compared.sort_by_key(|row| row.colour);
    let picture = forest(
        "m = 4 beside softmax",
        "difference in wrong images, % of those of softmax",
        &["softmax, %", "m = 4, %", "softmax fits, %"],
        &compared,
    )?;
    let caption = match diverged[..] {
        [] => CAPTION.to_owned(),
        _ => format!("{CAPTION} Every run with m = 4 diverged: {}.", diverged.join("; ")),
    };
    Ok(Some(("gain".into(), caption, picture)))
}

/// Runs with m = 4, each with that of softmax; nothing if none of the pairs can be compared.
fn forest_row(label: String, colour: usize, pairs: &[(&Record, &Record)]) -> Option<ForestRow> {
    let compared = pairs
        .iter()
        .filter_map(|(record, softmax)| Some((*record, *softmax, difference(record, softmax)?)));
    let compared: Vec<(&Record, &Record, Difference)> = compared.collect();
    let diverged = pairs.iter().filter(|(record, _)| record.summary().is_none()).count();
    let label = match diverged {
        0 => label,
        _ => format!("{label}, {diverged} of {} diverged", pairs.len()),
    };
    let softmax = compared.iter().map(|(_, softmax, _)| *softmax);
    let cells = vec![
        mean(softmax.clone().filter_map(error), 2),
        mean(compared.iter().filter_map(|(record, ..)| error(record)), 2),
        mean(softmax.filter_map(Record::training_accuracy), 1),
    ];
    let differences: Vec<_> = compared.iter().map(|(.., difference)| *difference).collect();
    (!differences.is_empty()).then_some(ForestRow { label, colour, differences, cells })
}

/// Whether a row is of m = 4. The study of λ has other schedules as well, whose runs have a variant in their names.
fn is_compared(row: &Row, table: &str) -> bool {
    let head = row.recipe.head;
    let usual = row.variant.is_empty() || row.recipe.lambda == Lambda::AUTO;
    head.kind() == HeadKind::LSoftmax
        && head.margin().value() == 4.0
        && row.recipe.loss.uses_margin()
        && (usual || table != "lambda")
}

/// Group, λ if it is not the recipe's, and length.
fn label(entry: &RowRecords<'_>) -> String {
    let lambda = entry.row.lambda.iter().filter(|lambda| *lambda != TIED);
    let parts = std::iter::once(&entry.row.group).chain(lambda).map(String::as_str);
    format!("{}, {} steps", parts.collect::<Vec<_>>().join(", "), grouped(entry.steps))
}

/// The result on the larger of two sets, the held-out and the test images, and which images were wrong if that was recorded.
fn measured(record: &Record) -> Option<(Evaluation, Option<&[u32]>)> {
    let summary = record.summary()?;
    let wrong = record.test().map(|test| test.wrong.as_slice());
    match (summary.validation, summary.test) {
        (Some(held_out), Some(test)) if held_out.images > test.images => Some((held_out, None)),
        (held_out, test) => test.map(|test| (test, wrong)).or(held_out.map(|found| (found, None))),
    }
}

fn error(record: &Record) -> Option<f64> {
    measured(record).map(|(found, _)| found.error)
}

/// The difference to softmax relative to softmax's errors, in percent.
fn difference(record: &Record, softmax: &Record) -> Option<Difference> {
    let ((found, wrong), (other, other_wrong)) = (measured(record)?, measured(softmax)?);
    if found.images != other.images || other.wrong == 0 {
        return None;
    }
    let images = found.images;
    let [rate, other] = [found, other].map(|found| found.wrong as f64 / images as f64);
    let standard_error = match wrong.zip(other_wrong) {
        Some((wrong, other)) => standard_error_of_pairs(wrong, other, images),
        None => standard_error_of_rates(rate, other, images),
    };
    let relative = |difference: f64| 100.0 * difference / other;
    Some(Difference { value: relative(rate - other), within: relative(WITHIN * standard_error) })
}

/// The mean as text.
fn mean(numbers: impl Iterator<Item = f64>, decimals: usize) -> String {
    let numbers: Vec<f64> = numbers.collect();
    Sample::of(&numbers).map_or("–".into(), |sample| format!("{:.decimals$}", sample.mean))
}

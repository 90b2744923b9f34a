//! The table of faces: accuracies on LFW's pairs by every protocol.

use std::collections::BTreeSet;

use lsoftmax_faces::{Protocol, Verification};

use super::result_table::{ResultTable, SEEDS};
use super::tables::{Comparison, RowRecords, by_row, common_seeds, grouped, softmax_of};
use crate::records::{Record, Records, Sample, paired_t_test};
use crate::reproduce::Row;

/// The protocols in the order of the columns: the paper's first.
const PROTOCOLS: [Protocol; 4] =
    [Protocol::Paper, Protocol::SphereFace, Protocol::InsightFace, Protocol::BestThreshold];

/// A row for every loss that has records.
pub(super) fn face_table(title: &str, rows: &[Row], records: &Records) -> ResultTable {
    let mut head: Vec<String> = ["", "steps", SEEDS].map(String::from).into();
    head.extend(PROTOCOLS.map(|protocol| format!("{}, %", protocol.name())));
    head.extend(["vs softmax", "p"].map(String::from));
    let has_paper = rows.iter().any(|row| row.paper.is_some());
    head.extend(has_paper.then(|| "the paper's, %".into()));
    let others = ["AUC of unseen people", "held-out error, %", "training accuracy, %"];
    head.extend(others.map(String::from));
    let mut table = ResultTable { title: title.into(), head, ..ResultTable::default() };
    let all = by_row(rows, records);
    for entry in all.iter().filter(|entry| !entry.records.is_empty()) {
        let RowRecords { row, records, .. } = entry;
        let mut cells = entry.first_cells(rows);
        cells.extend(PROTOCOLS.map(|protocol| accuracy_text(records, protocol)));
        let compared =
            softmax_of(&all, entry).and_then(|softmax| compare(records, &softmax.records));
        cells.extend(Comparison::cells(compared.as_ref()));
        if has_paper {
            let accuracy = row.paper.map(|paper| format!("{:.2}", 100.0 - paper.test_error));
            cells.push(accuracy.unwrap_or("–".into()));
        }
        cells.push(unseen_text(records));
        cells.extend([Record::validation_error, Record::training_accuracy].map(|f| entry.cell(f)));
        table.rows.push(entry.result_row(cells));
    }
    if table.rows.is_empty() {
        table.notes.push("There are no records yet.".into());
        return table;
    }
    let results = all.iter().flat_map(|entry| &entry.records).filter_map(|r| r.lfw.as_ref());
    let sets: BTreeSet<_> = results.map(|result| [result.images, result.people]).collect();
    let data = match Vec::from_iter(sets)[..] {
        [set] => {
            let [images, people] = set.map(|count| grouped(count as u64));
            format!(
                " Rows with as many steps have the same budget of {images} images of {people} people, the held-out ones included."
            )
        }
        _ => String::new(),
    };
    table.notes.push(format!(
        "Accuracy on the pairs of LFW by four protocols, mean of the folds ± standard error over folds; with several seeds their mean. \
         The difference to softmax is by the paper's protocol, over common seeds; p: paired t-test over its folds (f), which knows nothing of \
         what another seed would give. Unseen people are those whom `lsoftmax faces list` held out; their AUC is over all pairs of their images, \
         mean ± standard deviation over seeds. The held-out error is of other images of the people that were trained on.{data}"
    ));
    if has_paper {
        table.notes.push(
            "The paper trains on 490,000 images of more than 10,000 people, and larger ones: its accuracies are here to compare the order of \
             the losses, not the numbers."
                .into(),
        );
    }
    table
}

fn verification(record: &Record, protocol: Protocol) -> Option<&Verification> {
    record.lfw.as_ref()?.of(protocol)
}

/// The mean accuracy, and the standard error over folds; both averaged over seeds.
fn accuracy_text(records: &[&Record], protocol: Protocol) -> String {
    let found: Vec<&Verification> =
        records.iter().filter_map(|record| verification(record, protocol)).collect();
    let mean = |values: Vec<f64>| Sample::of(&values).map(|sample| 100.0 * sample.mean);
    let accuracy = mean(found.iter().map(|result| result.accuracy).collect());
    let error = mean(found.iter().filter_map(|result| result.standard_error).collect());
    let diverged = records.iter().filter(|record| record.summary().is_none()).count();
    match (accuracy, error) {
        (Some(accuracy), Some(error)) => format!("{accuracy:.2} ± {error:.2}"),
        (Some(accuracy), None) => format!("{accuracy:.2}"),
        (None, _) if diverged > 0 => "diverged".into(),
        (None, _) => "–".into(),
    }
}

/// The mean AUC of people whom the models were not trained on, and the standard deviation over seeds.
fn unseen_text(records: &[&Record]) -> String {
    let auc = |record: &&Record| Some(record.lfw.as_ref()?.unseen?.auc);
    let sample = Sample::of(&records.iter().filter_map(auc).collect::<Vec<_>>());
    sample.map_or("–".into(), |sample| sample.text(3))
}

/// How the accuracies by the paper's protocol differ from softmax, in percent. Every fold has people of its own, so the test is paired
/// over folds; the differences of a fold are averaged over common seeds.
fn compare(records: &[&Record], softmax: &[&Record]) -> Option<Comparison> {
    let folds = |record: &Record| -> Option<Vec<f64>> {
        let folds = &verification(record, Protocol::Paper)?.folds;
        Some(folds.iter().map(|fold| 100.0 * fold.accuracy).collect())
    };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = common_seeds(records, softmax)
        .filter_map(|(record, softmax)| folds(record).zip(folds(softmax)))
        .collect();
    let folds = pairs.first()?.0.len();
    if pairs.iter().any(|(a, b)| [a.len(), b.len()] != [folds; 2]) {
        return None;
    }
    let differences: Vec<f64> = (0..folds)
        .map(|fold| pairs.iter().map(|(a, b)| a[fold] - b[fold]).sum::<f64>() / pairs.len() as f64)
        .collect();
    let difference = Sample::of(&differences)?.mean;
    Some(Comparison { difference, p: paired_t_test(&differences).map(|p| (p, 'f')) })
}

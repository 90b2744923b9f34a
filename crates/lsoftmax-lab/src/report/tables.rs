//! The paper's tables from records: means over seeds, beside the paper's numbers.

use std::collections::BTreeSet;

use super::face_table::face_table;
use super::result_table::{ResultRow, ResultTable, SEEDS};
use crate::figures::group_thousands;
use crate::records::{Record, Records, Sample, mcnemar_test, paired_t_test, two_proportions_test};
use crate::reproduce::{Experiment, Row};

/// A number that a run has, if it was measured and training did not diverge.
pub(super) type Measure = fn(&Record) -> Option<f64>;

/// The records of a row at one length.
pub(super) struct RowRecords<'a> {
    pub row: &'a Row,
    pub steps: u64,
    pub records: Vec<&'a Record>,
}

impl RowRecords<'_> {
    /// The cells with which a row of a table begins: its name among `rows`, its length, its seeds.
    pub fn first_cells(&self, rows: &[Row]) -> Vec<String> {
        let seeds = self.records.iter().map(|record| record.recipe.seed.to_string());
        let seeds = seeds.collect::<Vec<_>>().join(" ");
        vec![row_label(self.row, rows), grouped(self.steps), seeds]
    }

    /// A row of a table, which links to the records.
    pub fn result_row(&self, cells: Vec<String>) -> ResultRow {
        let run = |record: &&Record| (record.recipe.seed, record.id.clone());
        ResultRow { cells, runs: self.records.iter().map(run).collect() }
    }

    /// The mean of a measure over the runs that did not diverge, as a cell.
    pub fn cell(&self, measure: Measure) -> String {
        error_text(self.sample(measure), &self.records)
    }

    fn sample(&self, measure: Measure) -> Option<Sample> {
        let done = self.records.iter().filter(|record| record.summary().is_some());
        Sample::of(&done.filter_map(|record| measure(record)).collect::<Vec<_>>())
    }
}

/// The records of an experiment's rows: by group, then by length, in the order of the rows.
pub(super) fn by_row<'a>(rows: &'a [Row], records: &'a Records) -> Vec<RowRecords<'a>> {
    let mut found = Vec::new();
    for group in rows.chunk_by(|a, b| a.group == b.group) {
        let matching = |row: &Row| -> Vec<&Record> {
            let mut found: Vec<_> = records.all().iter().filter(|record| row.has(record)).collect();
            found.sort_by_key(|record| record.recipe.seed);
            found
        };
        let of_rows: Vec<_> = group.iter().map(|row| (row, matching(row))).collect();
        let lengths: BTreeSet<u64> =
            of_rows.iter().flat_map(|(_, found)| found).map(|record| record.recipe.steps).collect();
        for steps in lengths {
            for (row, all) in &of_rows {
                let records: Vec<&Record> =
                    all.iter().copied().filter(|record| record.recipe.steps == steps).collect();
                found.push(RowRecords { row, steps, records });
            }
        }
    }
    found
}

/// The runs with softmax of the same group and length, with which others are compared.
pub(super) fn softmax_of<'a>(
    all: &'a [RowRecords<'a>],
    entry: &RowRecords,
) -> Option<&'a RowRecords<'a>> {
    let comparable = |other: &&RowRecords| {
        (&other.row.group, other.steps) == (&entry.row.group, entry.steps) && other.row.is_softmax()
    };
    all.iter().find(comparable).filter(|softmax| !std::ptr::eq(softmax.row, entry.row))
}

/// The name of one of these rows: with its group, if there are several.
pub(super) fn row_label(row: &Row, rows: &[Row]) -> String {
    match rows.iter().any(|other| other.group != row.group) {
        true => format!("{}, {}", row.group, row.label()),
        false => row.label(),
    }
}

/// The table of an experiment, of the rows that have records.
pub fn table(experiment: &Experiment, records: &Records) -> ResultTable {
    let rows = experiment.rows();
    if rows.iter().any(|row| row.lfw) {
        return face_table(experiment.title, &rows, records);
    }
    let columns = Columns::of(&rows);
    let mut head = vec!["", "steps", SEEDS];
    head.extend(columns.names());
    head.push("p");
    let mut table = ResultTable {
        title: experiment.title.into(),
        head: head.into_iter().map(String::from).collect(),
        ..ResultTable::default()
    };
    let all = by_row(&rows, records);
    let (mut reached, mut missed) = (Vec::new(), Vec::new());
    for entry in all.iter().filter(|entry| !entry.records.is_empty()) {
        let RowRecords { row, steps, records } = entry;
        let mut cells = entry.first_cells(&rows);
        if let Some(measures) = columns.measures() {
            cells.extend(measures.map(|measure| entry.cell(measure)));
        } else {
            let test = entry.sample(Record::test_error);
            let paper = row.paper.map_or("–".into(), |paper| format!("{:.2}", paper.test_error));
            let difference = test.zip(row.paper).map(|(test, paper)| test.mean - paper.test_error);
            if let Some((by, paper)) = difference.zip(row.paper) {
                let rows = if by > paper.tolerance { &mut missed } else { &mut reached };
                rows.push(format!("{} at {} steps", cells[0], grouped(*steps)));
            }
            cells.extend([error_text(test, records), paper, signed(difference)]);
        }
        let compared = softmax_of(&all, entry)
            .and_then(|softmax| Comparison::of(records, &softmax.records, columns));
        cells.extend(Comparison::cells(compared.as_ref()));
        table.rows.push(entry.result_row(cells));
    }
    if table.rows.is_empty() {
        table.notes.push("There are no records yet.".into());
        return table;
    }
    let of_one_seed = match columns {
        Columns::HeldOut => {
            "the test of two proportions of the held-out images (P), an upper estimate as they are the same images"
        }
        Columns::Paper | Columns::Angles => "McNemar's test on the test images (M)",
    };
    table.notes.push(format!(
        "Mean ± standard deviation over seeds; every seed is a run. p: paired t-test over seeds (t); with one seed {of_one_seed}."
    ));
    table.notes.extend(note_on_paper(&reached, &missed));
    table
}

/// Which rows do not reach the paper's error, or which do, whichever are fewer.
fn note_on_paper(reached: &[String], missed: &[String]) -> Option<String> {
    match (reached.len(), missed.len()) {
        (_, 0) => None,
        (0, 2..) => Some("No row reaches the paper's error.".into()),
        (fewer, more) if fewer > 0 && fewer < more => {
            Some(format!("The paper's error is reached only by {}.", reached.join("; ")))
        }
        _ => Some(format!("The paper's error is not reached by {}.", missed.join("; "))),
    }
}

/// What a table shows besides the runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// The error beside the paper's.
    Paper,
    /// Errors on held-out and test images, by which schedules are compared.
    HeldOut,
    /// The test error and angles, by which heads are compared.
    Angles,
}

impl Columns {
    fn of(rows: &[Row]) -> Self {
        if rows.iter().any(|row| row.paper.is_some()) {
            Self::Paper
        } else if rows.iter().any(|row| !row.recipe.head.is_free()) {
            Self::Angles
        } else {
            Self::HeldOut
        }
    }

    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Paper => ["test error, %", "the paper's, %", "vs the paper", "vs softmax"],
            Self::HeldOut => [
                "held-out error, %",
                "test error, %",
                "training accuracy, %",
                "held out vs softmax",
            ],
            Self::Angles => {
                ["test error, %", "angle to own class, °", "angle between classes, °", "vs softmax"]
            }
        }
    }

    /// The measures in the columns, if these are all that they show.
    fn measures(self) -> Option<[Measure; 3]> {
        match self {
            Self::Paper => None,
            Self::HeldOut => {
                Some([Record::validation_error, Record::test_error, Record::training_accuracy])
            }
            Self::Angles => Some([
                Record::test_error,
                Record::angle_to_own_class,
                Record::angle_between_classes,
            ]),
        }
    }

    /// The error that is compared with softmax. Schedules are compared on held-out images, results of the
    /// paper and heads on test images.
    fn compared(self) -> Measure {
        match self {
            Self::HeldOut => Record::validation_error,
            Self::Paper | Self::Angles => Record::test_error,
        }
    }

    /// The p-value of two single runs, and the letter of its test. Which images were wrong is known of the test images only.
    fn test_of_one_seed(self, record: &Record, softmax: &Record) -> Option<(f64, char)> {
        if self != Self::HeldOut {
            let (wrong, other) = record.test().zip(softmax.test())?;
            return Some((mcnemar_test(&wrong.wrong, &other.wrong), 'M'));
        }
        let held_out = |record: &Record| record.summary().and_then(|summary| summary.validation);
        let (found, other) = held_out(record).zip(held_out(softmax))?;
        let same = found.images == other.images;
        same.then(|| (two_proportions_test(found.wrong, other.wrong, found.images), 'P'))
    }
}

/// The runs that have the seed of a run with softmax, each with that run.
pub(super) fn common_seeds<'a>(
    records: &[&'a Record],
    softmax: &[&'a Record],
) -> impl Iterator<Item = (&'a Record, &'a Record)> {
    records.iter().filter_map(|record| {
        let same = |other: &&&Record| other.recipe.seed == record.recipe.seed;
        softmax.iter().find(same).map(|other| (*record, *other))
    })
}

/// How runs differ from those with softmax.
pub(super) struct Comparison {
    /// The mean difference over common seeds.
    pub difference: f64,
    /// The p-value, and the letter of its test.
    pub p: Option<(f64, char)>,
}

impl Comparison {
    fn of(records: &[&Record], softmax: &[&Record], columns: Columns) -> Option<Self> {
        let measure = columns.compared();
        let measured = |(a, b): &(&Record, &Record)| measure(a).is_some() && measure(b).is_some();
        let pairs: Vec<(&Record, &Record)> =
            common_seeds(records, softmax).filter(measured).collect();
        let differences: Vec<f64> =
            pairs.iter().filter_map(|(a, b)| Some(measure(a)? - measure(b)?)).collect();
        let difference = Sample::of(&differences)?.mean;
        let p = match pairs[..] {
            [(record, softmax)] => columns.test_of_one_seed(record, softmax),
            _ => paired_t_test(&differences).map(|p| (p, 't')),
        };
        Some(Self { difference, p })
    }

    /// The difference and its p-value as cells of a table.
    pub fn cells(comparison: Option<&Self>) -> [String; 2] {
        let p = match comparison.and_then(|comparison| comparison.p) {
            None => "–".into(),
            Some((p, test)) if p < 0.001 => format!("< 0.001 ({test})"),
            Some((p, test)) => format!("{p:.3} ({test})"),
        };
        [signed(comparison.map(|comparison| comparison.difference)), p]
    }
}

fn error_text(sample: Option<Sample>, records: &[&Record]) -> String {
    let diverged = records.iter().filter(|record| record.summary().is_none()).count();
    let value = sample.map(|sample| sample.text(2));
    match (value, diverged) {
        (Some(value), 0) => value,
        (Some(value), _) => format!("{value}, {diverged} of {} diverged", records.len()),
        (None, 0) => "–".into(),
        (None, _) => "diverged".into(),
    }
}

/// A difference with its sign.
fn signed(difference: Option<f64>) -> String {
    match difference.map(|difference| format!("{difference:+.2}")) {
        None => "–".into(),
        Some(text) if ["+0.00", "-0.00"].contains(&text.as_str()) => "0.00".into(),
        Some(text) => text.replace('-', "−"),
    }
}

/// A count with commas.
pub(super) fn grouped(count: u64) -> String {
    group_thousands(&count.to_string())
}

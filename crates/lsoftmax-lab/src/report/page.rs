//! The page with all tables, figures and runs.

use super::pictures::NamedPicture;
use super::result_table::{ResultRow, ResultTable};
use super::tables::{grouped, table};
use crate::figures::{Cell, Figure, Page, Section, Table};
use crate::records::{Record, RecordedResult, Records};
use crate::reproduce::Experiment;

/// The page. A row of a table links to the list of its runs.
pub(super) fn page(records: &Records, mut pictures: Vec<NamedPicture>) -> Page {
    let mut sections = Vec::new();
    let mut runs = Section::new("runs", "Runs").paragraph(
        "The directory records/runs/NAME has the recipe, the log and the results of a run.",
    );
    let mut listed = Vec::new();
    for experiment in &Experiment::ALL {
        let mut section = Section::new(experiment.name, experiment.title);
        for picture in pictures.extract_if(.., |picture| picture.experiment == experiment.name) {
            let NamedPicture { name, caption, picture, .. } = picture;
            let files = vec![format!("{name}.svg"), format!("{name}.png")];
            section = section.figure(Figure { files, ..Figure::new(caption, picture) });
        }
        let table = table(experiment, records);
        if table.rows.is_empty() && !experiment.rows().is_empty() {
            let command = format!("lsoftmax reproduce {}", experiment.name);
            section =
                section.paragraph(format!("There are no records yet. To make them: {command}"));
        } else if !table.rows.is_empty() {
            section = section.table(page_table(&table));
        }
        for row in &table.rows {
            let anchor = anchor(row);
            if !listed.contains(&anchor) {
                runs = runs.table(runs_of(row, &anchor, records));
                listed.push(anchor);
            }
        }
        sections.push(section);
    }
    sections.push(runs);
    Page {
        title: "Large-margin softmax: the paper's tables and figures, run again".into(),
        introduction: vec![
            "From the records of finished runs alone. Errors are percentages; the test images were evaluated once, \
             after the last step. Most runs are shorter than the paper's 18,000 steps: compare a row with the others of its \
             length before comparing it with the paper."
                .into(),
        ],
        sections,
        command: "lsoftmax reproduce all\nlsoftmax report".into(),
    }
}

/// The anchor of the list of a row's runs.
fn anchor(row: &ResultRow) -> String {
    let first = row.runs.first().map_or("none", |(_, id)| id.as_str());
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    format!("run-{first}").chars().map(allowed).collect()
}

fn page_table(table: &ResultTable) -> Table {
    let row = |row: &ResultRow| {
        let link = format!("#{}", anchor(row));
        let (first, rest) = row.cells.split_first().expect("a row has cells");
        let mut cells = vec![Cell::linked(first.clone(), link)];
        cells.extend(rest.iter().cloned().map(Cell::from));
        cells
    };
    Table {
        head: table.head.clone(),
        rows: table.rows.iter().map(row).collect(),
        note: table.notes.join(" "),
        ..Table::default()
    }
}

/// One row per run.
fn runs_of(row: &ResultRow, anchor: &str, records: &Records) -> Table {
    let head = ["run", "held-out error, %", "test error, %", "hours", "CPU", "kernels", "program"];
    let cells = |record: &Record| {
        let Record { id, environment, .. } = record;
        let percent =
            |error: Option<f64>| error.map_or("–".into(), |error| format!("{error:.2}"));
        let hours = match &record.result {
            RecordedResult::Done { summary, .. } => format!("{:.2}", summary.seconds / 3600.0),
            RecordedResult::Diverged(diverged) => {
                format!("diverged after {} steps", grouped(diverged.step))
            }
        };
        let commit: String = environment.commit.chars().take(10).collect();
        let texts = [
            id.clone(),
            percent(record.validation_error()),
            percent(record.test_error()),
            hours,
            environment.cpu.clone(),
            environment.path.clone(),
            format!("{} ({commit})", environment.version),
        ];
        texts.map(Cell::from).to_vec()
    };
    let of_row = |record: &&Record| row.runs.iter().any(|(_, id)| *id == record.id);
    Table {
        id: anchor.to_owned(),
        caption: format!("{}, {} steps", row.cells[0], row.cells[1]),
        head: head.map(String::from).to_vec(),
        rows: records.all().iter().filter(of_row).map(cells).collect(),
        ..Table::default()
    }
}

//! Tables in Markdown documents, between markers, and copies of figures beside them.
//!
//! ```text
//! <!-- report:table2 -->
//! … replaced by the table …
//! <!-- /report:table2 -->
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pictures::NamedPicture;
use super::{ReportError, tables};
use crate::records::Records;
use crate::reproduce::Experiment;

/// A document whose tables differ from the records, or a figure that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The document or figure.
    pub path: PathBuf,
    /// Its text with the tables of the records, or the figure of the records as SVG.
    pub text: String,
    /// The lines that differ, none for a figure: those of the document with `-`, those of the records with `+`.
    pub difference: String,
}

/// The documents with markers in a directory (`README.md`, `docs/*.md`, `records/README.md`) whose tables
/// differ from the records, and the figures in `docs` that have the name of one of the report's and differ from it.
///
/// # Errors
/// When a document cannot be read, or a marker is unknown or not closed.
pub(super) fn outdated(
    root: &Path,
    records: &Records,
    pictures: &[NamedPicture],
) -> Result<Vec<Outdated>, ReportError> {
    let mut documents = vec![root.join("README.md"), root.join("records/README.md")];
    let docs = root.join("docs");
    let unreadable = |source: io::Error| ReportError::Document {
        path: docs.clone(),
        reason: source.to_string(),
    };
    let entries = match fs::read_dir(&docs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        entries => Some(entries.map_err(unreadable)?),
    };
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    documents.sort();
    let mut found = Vec::new();
    for path in documents.into_iter().filter(|path| path.is_file()) {
        let old = read(&path)?;
        let to_runs = match path.strip_prefix(root).ok().and_then(|path| path.parent()) {
            Some(folder) if folder == Path::new("records") => "runs".to_owned(),
            Some(folder) => format!("{}records/runs", "../".repeat(folder.components().count())),
            None => "records/runs".to_owned(),
        };
        let text = with_tables(&old, &to_runs, records)
            .map_err(|reason| ReportError::Document { path: path.clone(), reason })?;
        if text != old {
            let difference = difference(&old, &text);
            found.push(Outdated { path, text, difference });
        }
    }
    for picture in pictures {
        let path = root.join("docs").join(format!("{}.svg", picture.name));
        let text = picture.picture.as_str();
        if path.is_file() && read(&path)? != text {
            found.push(Outdated { path, text: text.to_owned(), difference: String::new() });
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, ReportError> {
    fs::read_to_string(path).map_err(|source| ReportError::Document {
        path: path.to_owned(),
        reason: source.to_string(),
    })
}

const OPENING: &str = "<!-- report:";

/// Where a line starts with `word`: a text may speak of a marker without being one.
fn find_at_line_start(text: &str, word: &str) -> Option<usize> {
    let mut starts = text.match_indices(word).map(|(start, _)| start);
    starts.find(|start| *start == 0 || text[..*start].ends_with('\n'))
}

/// A document with its tables made anew.
fn with_tables(old: &str, to_runs: &str, records: &Records) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = old;
    while let Some(start) = find_at_line_start(rest, OPENING) {
        let after = &rest[start + OPENING.len()..];
        let (name, _) = after.split_once(" -->").ok_or("a marker `<!-- report:` is not closed")?;
        let experiment = Experiment::named(name)
            .ok_or_else(|| format!("the marker `report:{name}` names no table or figure"))?;
        let closing = format!("<!-- /report:{name} -->");
        let end =
            find_at_line_start(after, &closing).ok_or_else(|| format!("`{closing}` is missing"))?;
        let table = tables::table(experiment, records).to_markdown(to_runs);
        text.push_str(&rest[..start]);
        text.push_str(&format!("<!-- report:{name} -->\n{table}{closing}"));
        rest = &after[end + closing.len()..];
    }
    text.push_str(rest);
    Ok(text)
}

/// The lines that only one of two texts has, in order.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let only = |these: &[&str], those: &[&str], sign: char| -> Vec<String> {
        let missing = these.iter().filter(|line| !those.contains(line));
        missing.map(|line| format!("{sign} {line}")).collect()
    };
    [only(&old, &new, '-'), only(&new, &old, '+')].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_records() -> Records {
        Records::read(Path::new("/nonexistent")).expect("a missing directory has no records")
    }

    #[test]
    fn text_outside_the_markers_stays() {
        let old = "# Title\n<!-- report:table2 -->\nold\n<!-- /report:table2 -->\nend\n";
        let new = with_tables(old, "records/runs", &no_records()).unwrap();
        assert!(new.starts_with("# Title\n<!-- report:table2 -->\n|"), "{new}");
        assert!(new.ends_with("<!-- /report:table2 -->\nend\n"), "{new}");
        assert!(!new.contains("old"), "{new}");
        assert_eq!(with_tables(&new, "records/runs", &no_records()).unwrap(), new);
    }

    #[test]
    fn a_closing_marker_before_the_opening_one_is_text() {
        let old = "<!-- /report:table2 -->\n<!-- report:table2 -->\n<!-- /report:table2 -->\n";
        let new = with_tables(old, "records/runs", &no_records()).unwrap();
        assert_eq!(new.matches("<!-- report:table2 -->").count(), 1, "{new}");
        assert_eq!(with_tables(&new, "records/runs", &no_records()).unwrap(), new);
    }

    #[test]
    fn a_marker_inside_a_line_is_text() {
        let text = "write `<!-- report:NAME -->` where the table belongs";
        assert_eq!(with_tables(text, "", &no_records()).unwrap(), text);
    }

    #[test]
    fn bad_markers_are_named() {
        for (text, word) in [
            ("<!-- report:table9 -->", "table9"),
            ("<!-- report:table2 -->\n", "/report:table2"),
            ("<!-- report:table2", "not closed"),
        ] {
            let error = with_tables(text, "", &no_records()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_difference_shows_the_lines_of_both_sides() {
        assert_eq!(difference("a\nb\nc", "a\nd\nc"), "- b\n+ d");
    }
}

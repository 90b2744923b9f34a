//! Links in the project's documents lead to files and headings that exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The documents of the repository: those at its root, in its directories of documents, and of its crates.
fn documents(root: &Path) -> Vec<PathBuf> {
    let entries = |directory: PathBuf| {
        let entries = fs::read_dir(&directory).expect("the directory can be read");
        entries.map(|entry| entry.expect("the directory can be read").path()).collect::<Vec<_>>()
    };
    let directories = ["", "docs", "bench", "records", "reference"].map(|name| root.join(name));
    let crates = entries(root.join("crates"));
    let paths = directories.into_iter().chain(crates).flat_map(entries);
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The lines outside of code blocks, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let lower = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(document: &str, wanted: &str) -> bool {
    prose(document).any(|(_, line)| line.starts_with('#') && anchor(line) == wanted)
}

/// Why a link in a document leads nowhere.
fn broken(document: &Path, text: &str, target: &str) -> Option<&'static str> {
    if target.starts_with("https://") {
        return None;
    }
    let (path, wanted) = match target.split_once('#') {
        Some((path, wanted)) => (path, Some(wanted)),
        None => (target, None),
    };
    let directory = document.parent().expect("a file is in a directory");
    let file = if path.is_empty() { document.to_owned() } else { directory.join(path) };
    if !file.exists() {
        return Some("no such file");
    }
    let wanted = wanted?;
    let linked = match path {
        "" => text.to_owned(),
        _ => fs::read_to_string(file).expect("a document with headings is text"),
    };
    (!has_anchor(&linked, wanted)).then_some("no such heading")
}

#[test]
fn links_in_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    let mut found = Vec::new();
    for document in documents(&root) {
        let text = fs::read_to_string(&document).expect("documents are text");
        for (number, line) in prose(&text) {
            for target in targets(line) {
                count += 1;
                if let Some(reason) = broken(&document, &text, target) {
                    found.push(format!("{}:{number}: {target}: {reason}", document.display()));
                }
            }
        }
    }
    assert!(count > 500, "only {count} links were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let text = "# The λ of a run, by step\n[a](#the-λ-of-a-run-by-step) [b](#the-λ) [c](gone.md)\n```\n[d](code.md)\n```\n";
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let all: Vec<_> = prose(text).flat_map(|(_, line)| targets(line)).collect();
    assert_eq!(all, ["#the-λ-of-a-run-by-step", "#the-λ", "gone.md"]);
    let reasons = all.into_iter().map(|target| broken(&document, text, target));
    assert_eq!(reasons.collect::<Vec<_>>(), [None, Some("no such heading"), Some("no such file")]);
}

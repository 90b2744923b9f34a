//! The keys of JSON values, and those that a document lists.

use std::collections::BTreeSet;

use serde_json::Value;

/// The paths of all values other than objects, such as `test.error`; the elements of a list share one.
pub fn key_paths(value: &Value) -> BTreeSet<String> {
    fn add(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    add(value, &path, found);
                }
            }
            Value::Array(values) if values.iter().any(Value::is_object) => {
                values.iter().for_each(|value| add(value, path, found));
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }
    let mut found = BTreeSet::new();
    add(value, "", &mut found);
    found
}

/// The keys in backticks of the first column of the tables below a heading.
///
/// # Panics
/// When there is no such heading, or no key below it.
pub fn documented_keys(document: &str, heading: &str) -> BTreeSet<String> {
    let mut lines = document.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no {heading:?}");
    let section = lines.take_while(|line| !line.starts_with("## "));
    let first_cells = section.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let keys = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned));
    let keys: BTreeSet<String> = keys.collect();
    assert!(!keys.is_empty(), "there are no keys below {heading:?}");
    keys
}

/// The keys that are not among those documented below a heading.
pub fn undocumented_keys<'a>(
    document: &str,
    heading: &str,
    found: &'a BTreeSet<String>,
) -> Vec<&'a String> {
    let documented = documented_keys(document, heading);
    found.iter().filter(|path| !documented.iter().any(|key| covers(key, path))).collect()
}

/// Whether a documented key stands for a path.
fn covers(key: &str, path: &str) -> bool {
    match key.strip_suffix(".*") {
        Some(object) => path.strip_prefix(object).is_some_and(|rest| rest.starts_with('.')),
        None => path == key,
    }
}

/// Asserts that the keys found are those documented below a heading. A documented `head.*` stands for all
/// keys of `head`.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn assert_documented(document: &str, heading: &str, found: &BTreeSet<String>) {
    let missing = undocumented_keys(document, heading, found);
    let documented = documented_keys(document, heading);
    let unknown: Vec<_> =
        documented.iter().filter(|key| !found.iter().any(|path| covers(key, path))).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "{heading}: not documented are {missing:?}, and there are no {unknown:?}"
    );
}

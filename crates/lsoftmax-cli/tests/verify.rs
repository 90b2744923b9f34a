//! `lsoftmax verify` on embeddings, against the reference's numbers, and on input that is wrong.

mod program;

use std::fs;
use std::path::Path;

use program::arrays::{PLAIN, npy};
use program::{assert_says, json, lsoftmax_in, printed, refused};
use serde_json::Value;
use tempfile::TempDir;

/// A directory with `e.npy` and `pairs.csv` of a case of the reference.
fn case_files(case: &Value) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let columns = case["columns"].as_u64().expect("a number") as usize;
    let values: Vec<f64> = serde_json::from_value(case["embeddings"].clone()).expect("numbers");
    let rows: Vec<Vec<f64>> = values.chunks_exact(columns).map(<[f64]>::to_vec).collect();
    fs::write(directory.path().join("e.npy"), npy(PLAIN, &rows, false)).expect("a file");
    let mut text = String::from("left,right,same,fold\n");
    for pair in 0..case["left"].as_array().expect("a list").len() {
        let field = |name: &str| case[name][pair].to_string();
        let fields = ["left", "right", "same", "fold"].map(field).join(",");
        text.push_str(&format!("{fields}\n"));
    }
    fs::write(directory.path().join("pairs.csv"), text).expect("a file");
    directory
}

fn verify(directory: &Path, more: &[&str]) -> std::process::Output {
    let files = ["verify", "--embeddings", "e.npy", "--pairs", "pairs.csv"];
    lsoftmax_in(directory, &[files.as_slice(), more].concat())
}

fn reference() -> Vec<Value> {
    let text = include_str!("../../../reference/fixtures/verification.json");
    let fixture: Value = serde_json::from_str(text).expect("JSON");
    fixture["cases"].as_array().expect("a list").clone()
}

#[test]
fn the_program_prints_the_accuracy_of_the_reference() {
    for case in reference() {
        let directory = case_files(&case);
        for expected in case["results"].as_array().expect("a list") {
            let protocol = expected["protocol"].as_str().expect("a name");
            let mut arguments = vec!["--protocol", protocol, "--json"];
            let dimension = expected["dimension"].to_string();
            if protocol == "paper" {
                arguments.extend(["--pca", &dimension]);
            }
            let found = json(verify(directory.path(), &arguments));
            for key in ["accuracy", "standard_error", "auc", "eer"] {
                match (found[key].as_f64(), expected[key].as_f64()) {
                    (Some(found), Some(expected)) => {
                        assert!(
                            (found - expected).abs() < 1e-9,
                            "{protocol} {key} {}",
                            case["name"]
                        );
                    }
                    (found, expected) => {
                        assert_eq!(found, expected, "{protocol} {key} {}", case["name"])
                    }
                }
            }
            let folds = expected["folds"].as_array().expect("a list").len();
            assert_eq!(found["thresholds"].as_array().map(Vec::len), Some(folds));
        }
    }
}

#[test]
fn several_protocols_are_a_list_and_curves_a_picture() {
    let directory = case_files(&reference()[0]);
    let found = json(verify(directory.path(), &["--protocol", "sphereface,insightface", "--json"]));
    let names: Vec<_> =
        found.as_array().expect("a list").iter().map(|one| &one["protocol"]).collect();
    assert_eq!(names, ["sphereface", "insightface"]);
    let said = printed(verify(directory.path(), &["--roc", "roc.svg"]));
    assert_says(said, &["accuracy", "±", "thresholds", "AUC", "EER", "at FAR 0.1"]);
    let picture = fs::read_to_string(directory.path().join("roc.svg")).expect("a picture");
    assert_says(picture, &["<svg", "sphereface", "true accept rate"]);
}

#[test]
fn wrong_input_is_named() {
    let directory = case_files(&reference()[0]);
    let path = directory.path();
    let write = |name: &str, text: &str| fs::write(path.join(name), text).expect("a file");

    let files = |embeddings: &str, pairs: &str| {
        lsoftmax_in(path, &["verify", "--embeddings", embeddings, "--pairs", pairs])
    };
    assert_says(refused(files("none.npy", "pairs.csv")), &["none.npy", "no such file"]);
    assert_says(refused(files("e.npy", "none.csv")), &["none.csv", "cannot be read"]);

    fs::write(path.join("nan.npy"), npy(PLAIN, &[vec![1.0, 2.0], vec![f64::NAN, 0.0]], false))
        .unwrap();
    assert_says(refused(files("nan.npy", "pairs.csv")), &["nan.npy", "row 1", "NaN"]);

    write("far.csv", "left,right,same,fold\n0,1,1,0\n0,99,0,1\n");
    assert_says(
        refused(files("e.npy", "far.csv")),
        &["far.csv, line 3", "`right` is 99", "0 to 79"],
    );
    write("kind.csv", "left,right,same,fold\n0,1,yes,0\n");
    assert_says(refused(files("e.npy", "kind.csv")), &["line 2", "`same` must be 0 or 1", "yes"]);
    write("fold.csv", "left,right,same,fold\n0,1,1,-1\n");
    assert_says(refused(files("e.npy", "fold.csv")), &["line 2", "`fold`", "-1"]);
    write("column.csv", "left,right,fold\n0,1,0\n");
    assert_says(refused(files("e.npy", "column.csv")), &["no column `same`"]);
    write("short.csv", "left,right,same,fold\n0,1,1\n");
    assert_says(refused(files("e.npy", "short.csv")), &["line 2", "3 fields"]);
    write("empty.csv", "left,right,same,fold\n");
    assert_says(refused(files("e.npy", "empty.csv")), &["empty.csv", "no pairs"]);
    write("one.csv", "left,right,same,fold\n0,1,1,0\n0,4,0,0\n");
    assert_says(refused(files("e.npy", "one.csv")), &["one fold", "best-threshold"]);
    assert_says(refused(verify(path, &["--protocol", "lfw"])), &["lfw", "sphereface"]);
}

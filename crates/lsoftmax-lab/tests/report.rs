//! Tables, documents and the page, from records alone.

mod picture;

use std::fs;
use std::path::{Path, PathBuf};

use lsoftmax::Margin;
use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::recipe::{Lambda, Recipe};
use lsoftmax_lab::records::Records;
use lsoftmax_lab::report::{self, ResultTable};
use lsoftmax_lab::reproduce::Experiment;
use picture::{all, number, read, value_at};

const IMAGES: u32 = 10_000;

/// Writes a record of MNIST in 3,000 steps in which these test images were wrong.
fn record(root: &Path, margin: f64, seed: u64, wrong: &[u32]) {
    record_of(root, Recipe::built_in("mnist").unwrap().scaled(3000), margin, seed, wrong);
}

/// Writes a record of faces in 1,600 steps with these accuracies on the folds of LFW.
fn record_faces(root: &Path, margin: f64, seed: u64, accuracies: &[f64]) {
    record_longer_faces(root, 1600, margin, seed, accuracies);
}

/// The same for any number of steps.
fn record_longer_faces(root: &Path, steps: u64, margin: f64, seed: u64, accuracies: &[f64]) {
    let recipe = Recipe::study("lfw-small").unwrap().scaled(steps);
    let path = record_of(root, recipe, margin, seed, &[]);
    let folds = accuracies.iter().enumerate().map(|(fold, accuracy)| {
        serde_json::json!({ "fold": fold, "pairs": 600, "threshold": 0.5, "accuracy": accuracy })
    });
    let mean = accuracies.iter().sum::<f64>() / accuracies.len() as f64;
    let paper = serde_json::json!({
        "protocol": "paper",
        "pairs": 600 * accuracies.len(),
        "accuracy": mean,
        "standard_error": 0.0025,
        "folds": folds.collect::<Vec<_>>(),
        "auc": null,
        "eer": null,
        "tar_at_far": null,
    });
    let lfw = serde_json::json!({ "people": 575, "images": 31437, "protocols": [paper], "roc": [[0.0, 0.0], [0.1, 0.9], [1.0, 1.0]], "unseen": { "people": 30, "images": 1544, "auc": 0.9 + 0.02 * seed as f64 } });
    fs::write(path.join("lfw.json"), lfw.to_string()).unwrap();
}

/// Writes a record of a recipe with another margin and seed, and returns its directory.
fn record_of(root: &Path, recipe: Recipe, margin: f64, seed: u64, wrong: &[u32]) -> PathBuf {
    let head = HeadSettings::l_softmax(Margin::new(margin).unwrap());
    let recipe = Recipe { head, seed, ..recipe };
    let (name, steps) = (&recipe.name, recipe.steps);
    let path = root.join(format!("records/runs/{name}-m{margin}-{steps}-s{seed}"));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("recipe.toml"), recipe.to_toml()).unwrap();
    let environment = r#"{"cpu":"a CPU","architecture":"x86_64","system":"linux","path":"avx2","threads":2,"version":"0.1.0","commit":"0123456789abcdef"}"#;
    fs::write(path.join("environment.json"), environment).unwrap();
    let log = r#"{"kind":"training","step":1600,"loss":0.1,"accuracy":0.5,"angle":30.0,"feature_norm":1.0,"lambda":2.0,"learning_rate":0.001,"images_per_second":100.0}"#;
    fs::write(path.join("metrics.jsonl"), format!("{log}\n")).unwrap();
    let found = |images: u32, wrong: usize| {
        let error = 100.0 * wrong as f64 / f64::from(images);
        format!(r#"{{"images":{images},"wrong":{wrong},"error":{error},"loss":0.1,"angle":20.0}}"#)
    };
    let (validation, test) = (found(5000, 30), found(IMAGES, wrong.len()));
    let summary = format!(
        r#"{{"recipe":"{name}","data":"{name}","margin":{margin},"seed":{seed},"steps":{steps},"batch":256,"validation":{validation},"test":{test},"seconds":7200.0,"rollbacks":0,"environment":{environment}}}"#
    );
    fs::write(path.join("summary.json"), summary).unwrap();
    let cosines: Vec<Vec<f64>> = (0..10).map(|_| vec![0.25; 10]).collect();
    let details = serde_json::json!({ "wrong": wrong, "cosines": cosines });
    fs::write(path.join("test.json"), details.to_string()).unwrap();
    path
}

fn table(name: &str, root: &Path) -> ResultTable {
    let records = Records::read(&root.join("records")).unwrap();
    report::table(Experiment::named(name).unwrap(), &records)
}

fn table2(root: &Path) -> ResultTable {
    table("table2", root)
}

fn wrong(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn a_table_has_means_over_seeds_beside_the_papers_numbers() {
    let root = tempfile::tempdir().unwrap();
    for (seed, softmax, margin) in [(1, 50, 38), (2, 54, 39), (3, 46, 37)] {
        record(root.path(), 1.0, seed, &wrong(softmax));
        record(root.path(), 4.0, seed, &wrong(margin));
    }
    let table = table2(root.path());
    let cells = |row: usize| table.rows[row].cells.join(" | ");
    // Hinge, m = 2 and m = 3 have no records and no rows.
    assert_eq!(table.rows.len(), 2);
    assert_eq!(cells(0), "softmax | 3,000 | 1 2 3 | 0.50 ± 0.04 | 0.40 | +0.10 | – | –");
    // Differences of −0.12, −0.15 and −0.09: t = −6.93 with two degrees of freedom.
    assert_eq!(
        cells(1),
        "L-Softmax, m = 4 | 3,000 | 1 2 3 | 0.38 ± 0.01 | 0.31 | +0.07 | −0.12 | 0.020 (t)"
    );
    assert!(table.notes.iter().all(|note| !note.contains("not reached")), "{:?}", table.notes);
}

#[test]
fn one_seed_is_compared_by_the_images_that_were_wrong() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1.0, 1, &wrong(60));
    let other: Vec<u32> = (0..40).chain(100..110).collect();
    record(root.path(), 2.0, 1, &other);
    let table = table2(root.path());
    // 20 images only softmax got wrong, 10 only the margin: 2 · P(X ≤ 10 | 30, 1/2) = 0.0987.
    let expected = "L-Softmax, m = 2 | 3,000 | 1 | 0.50 | 0.32 | +0.18 | −0.10 | 0.099 (M)";
    assert_eq!(table.rows[1].cells.join(" | "), expected);
}

#[test]
fn one_seed_is_compared_by_the_held_out_images_where_the_table_is_of_those() {
    let root = tempfile::tempdir().unwrap();
    for (margin, held_out) in [(1.0, 1300), (4.0, 1000)] {
        let recipe = Recipe::built_in("cifar100-by-margin").unwrap().scaled(3000);
        let summary = record_of(root.path(), recipe, margin, 1, &wrong(60)).join("summary.json");
        let mut text: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
        text["validation"]["wrong"] = held_out.into();
        text["validation"]["error"] = (held_out as f64 / 50.0).into();
        fs::write(summary, text.to_string()).unwrap();
    }
    let table = table("fig6", root.path());
    // z = 0.06 / √(2 · 0.23 · 0.77 / 5000) = 7.1; the test images are the same.
    let expected = "L-Softmax, m = 4 | 3,000 | 1 | 20.00 | 0.60 | 50.00 | −6.00 | < 0.001 (P)";
    assert_eq!(table.rows[1].cells.join(" | "), expected);
    assert!(table.notes[0].contains("two proportions"), "{:?}", table.notes);
}

#[test]
fn a_table_says_which_rows_do_not_reach_the_paper() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1.0, 1, &wrong(60));
    record(root.path(), 2.0, 1, &wrong(50));
    let last_note = || table2(root.path()).notes.pop().unwrap();
    assert_eq!(last_note(), "No row reaches the paper's error.");
    record(root.path(), 4.0, 1, &wrong(31));
    let only = "The paper's error is reached only by L-Softmax, m = 4 at 3,000 steps.";
    assert_eq!(last_note(), only);
    record(root.path(), 3.0, 1, &wrong(31));
    let expected = "The paper's error is not reached by softmax at 3,000 steps; L-Softmax, m = 2 at 3,000 steps.";
    assert_eq!(last_note(), expected);
}

#[test]
fn faces_are_compared_over_the_folds_of_lfw() {
    let root = tempfile::tempdir().unwrap();
    record_faces(root.path(), 1.0, 1, &[0.87, 0.88, 0.86, 0.89]);
    record_faces(root.path(), 4.0, 1, &[0.88, 0.89, 0.88, 0.89]);
    let cells = |row: usize| table("table5", root.path()).rows[row].cells.join(" | ");
    let expected = "faces, softmax | 1,600 | 1 | 87.50 ± 0.25 | – | – | – | – | – | 96.53 | 0.920 | 0.60 | 50.00";
    assert_eq!(cells(0), expected);
    // Differences of 1, 1, 2 and 0 points: t = 2.449 with three degrees of freedom.
    let expected = "faces, L-Softmax, m = 4 | 1,600 | 1 | 88.50 ± 0.25 | – | – | – | +1.00 | 0.092 (f) | 98.71 | 0.920 | 0.60 | 50.00";
    assert_eq!(cells(1), expected);
    // Seeds are averaged in every fold; one without softmax of the same seed does not count.
    record_faces(root.path(), 1.0, 2, &[0.87, 0.88, 0.86, 0.89]);
    record_faces(root.path(), 4.0, 2, &[0.90, 0.90, 0.88, 0.92]);
    record_faces(root.path(), 4.0, 3, &[0.99, 0.99, 0.99, 0.99]);
    // 2, 1.5, 2 and 1.5 points: t = 12.12.
    // The AUC of three seeds is 0.92, 0.94 and 0.96.
    assert!(cells(1).contains("| +1.75 | 0.001 (f) | 98.71 | 0.940 ± 0.020 |"), "{}", cells(1));
    // Folds of another number are of other pairs: there is nothing to compare.
    record_faces(root.path(), 4.0, 2, &[0.90, 0.90]);
    assert!(cells(1).contains("| – | – | 98.71"), "{}", cells(1));
}

#[test]
fn figures_compare_runs_of_one_length() {
    let root = tempfile::tempdir().unwrap();
    let accuracies = [0.87, 0.88];
    record_faces(root.path(), 1.0, 1, &accuracies);
    record_faces(root.path(), 4.0, 1, &accuracies);
    record_longer_faces(root.path(), 6400, 1.0, 1, &accuracies);
    let records = Records::read(&root.path().join("records")).unwrap();
    let out = root.path().join("report");
    report::write(&records, root.path(), &out).unwrap();
    let labels = |steps: u64| {
        let svg = fs::read_to_string(out.join(format!("table5-roc-{steps}.svg"))).unwrap();
        ["softmax", "L-Softmax, m = 4"].map(|label| svg.contains(label))
    };
    assert_eq!(labels(1600), [true, true]);
    assert_eq!(labels(6400), [true, false]);
}

#[test]
fn the_gain_of_a_margin_has_every_pair_once() {
    let root = tempfile::tempdir().unwrap();
    let gain = || {
        let records = Records::read(&root.path().join("records")).unwrap();
        let out = root.path().join("report");
        report::write(&records, root.path(), &out).unwrap();
        fs::read_to_string(out.join("gain.svg"))
    };
    record(root.path(), 1.0, 1, &wrong(50));
    record(root.path(), 2.0, 1, &wrong(40));
    assert!(gain().is_err(), "there is nothing with m = 4");
    record(root.path(), 4.0, 1, &wrong(40));
    // Two seeds of CIFAR10, whose rows are in three tables, and a third without softmax.
    let cifar10 = Recipe::built_in("cifar10").unwrap().scaled(3000);
    let runs = [(1.0, 1, 1400), (4.0, 1, 1260), (1.0, 2, 1000), (4.0, 2, 1050), (4.0, 3, 999)];
    for (margin, seed, count) in runs {
        record_of(root.path(), cifar10.clone(), margin, seed, &wrong(count));
    }
    // A λ that no table has: it is of no row.
    let other = Recipe { lambda: Lambda::constant(7.0).unwrap(), ..cifar10 };
    record_of(root.path(), Recipe { name: "other".into(), ..other }, 4.0, 1, &wrong(1));
    let svg = gain().unwrap();
    let texts =
        ["MNIST, 3,000 steps", ">0.50<", ">0.40<", "CIFAR10, 3,000 steps", ">12.00<", ">11.55<"];
    for text in texts {
        assert_eq!(svg.matches(text).count(), 1, "{text}: {svg}");
    }
    let document = read(&svg);
    let value = value_at(&document);
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.05, "{found}");
    // 10 of 50 fewer, 140 of 1400 fewer, 50 of 1000 more.
    let dots = all(&document, "circle");
    assert_eq!(dots.len(), 3);
    for (dot, expected) in dots.iter().zip([-20.0, -10.0, 5.0]) {
        close(value(number(dot, "cx")), expected);
    }
    // Of 140 images that only softmax got wrong: 1.96 · √(140 − 140²/10000) / 1400.
    let lines = all(&document, "line");
    let of_width = |width: &'static str| {
        lines.iter().filter(move |line| line.attribute("stroke-width") == Some(width))
    };
    let interval = of_width("1.2").nth(1).unwrap();
    close(value(number(interval, "x2")) - value(number(interval, "x1")), 2.0 * 1.645);
    let mean = of_width("3").next().unwrap();
    close(value(number(mean, "x1")), -2.5);
}

#[test]
fn a_diverged_run_is_counted_in_its_row() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 4.0, 1, &wrong(40));
    record(root.path(), 4.0, 2, &wrong(40));
    diverge(root.path(), "mnist-m4-3000-s2");
    let table = table2(root.path());
    assert_eq!(table.rows[0].cells[3], "0.40, 1 of 2 diverged");
}

/// Puts the result of a record that diverged in the place of another.
fn diverge(root: &Path, id: &str) {
    let path = root.join("records/runs").join(id);
    fs::remove_file(path.join("summary.json")).unwrap();
    fs::write(path.join("diverged.json"), r#"{"step": 77, "reason": "NaN"}"#).unwrap();
}

#[test]
fn a_pair_of_which_one_run_diverged_does_not_count_in_a_comparison() {
    let root = tempfile::tempdir().unwrap();
    for (seed, softmax, margin) in [(1, 60, 40), (2, 60, 45)] {
        record(root.path(), 1.0, seed, &wrong(softmax));
        record(root.path(), 4.0, seed, &wrong(margin));
    }
    diverge(root.path(), "mnist-m4-3000-s2");
    // 20 of 20 images that only one of the two got wrong.
    let expected = "0.40, 1 of 2 diverged | 0.31 | +0.09 | −0.20 | < 0.001 (M)";
    assert_eq!(table2(root.path()).rows[1].cells[3..].join(" | "), expected);
}

#[test]
fn a_run_that_was_not_as_its_recipe_says_is_in_no_table() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1.0, 1, &wrong(60));
    record(root.path(), 4.0, 1, &wrong(40));
    let summary = root.path().join("records/runs/mnist-m4-3000-s1/summary.json");
    let original = fs::read_to_string(&summary).unwrap();
    for change in [("rollbacks", serde_json::json!(1)), ("extended_from", serde_json::json!([9]))] {
        let mut text: serde_json::Value = serde_json::from_str(&original).unwrap();
        text[change.0] = change.1;
        fs::write(&summary, text.to_string()).unwrap();
        assert_eq!(table2(root.path()).rows.len(), 1, "{}", change.0);
    }
    fs::write(&summary, original).unwrap();
    assert_eq!(table2(root.path()).rows.len(), 2);
}

#[test]
fn the_figure_of_gains_says_what_diverged() {
    let root = tempfile::tempdir().unwrap();
    let cifar10 = Recipe::built_in("cifar10").unwrap().scaled(3000);
    for margin in [1.0, 4.0] {
        record(root.path(), margin, 1, &wrong(50));
        record_of(root.path(), cifar10.clone(), margin, 1, &wrong(1400));
    }
    diverge(root.path(), "mnist-m4-3000-s1");
    let records = Records::read(&root.path().join("records")).unwrap();
    let written = report::write(&records, root.path(), &root.path().join("report")).unwrap();
    let page = fs::read_to_string(written.page).unwrap();
    assert!(page.contains("Every run with m = 4 diverged: MNIST, 3,000 steps."));
}

#[test]
fn documents_are_checked_and_updated() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1.0, 1, &wrong(42));
    let marked = "# Title\n\n<!-- report:table2 -->\n<!-- /report:table2 -->\n\nText.\n";
    fs::create_dir(root.path().join("docs")).unwrap();
    fs::write(root.path().join("README.md"), marked).unwrap();
    fs::write(root.path().join("docs/results.md"), marked).unwrap();
    let records = Records::read(&root.path().join("records")).unwrap();
    let outdated = report::outdated(root.path(), &records).unwrap();
    assert_eq!(outdated.len(), 2);
    assert!(
        outdated[0]
            .difference
            .contains("+ | softmax | 3,000 | [1](records/runs/mnist-m1-3000-s1) | 0.42 |")
    );
    assert!(outdated[1].difference.contains("[1](../records/runs/mnist-m1-3000-s1)"));

    let written = report::write(&records, root.path(), &root.path().join("report")).unwrap();
    assert_eq!(written.documents.len(), 2);
    assert!(report::outdated(root.path(), &records).unwrap().is_empty());
    let text = fs::read_to_string(root.path().join("README.md")).unwrap();
    assert!(
        text.starts_with("# Title\n\n<!-- report:table2 -->\n|") && text.ends_with("\n\nText.\n")
    );

    record(root.path(), 1.0, 2, &wrong(44));
    let records = Records::read(&root.path().join("records")).unwrap();
    let outdated = report::outdated(root.path(), &records).unwrap();
    assert!(outdated[0].difference.contains("0.43 ± 0.01"), "{}", outdated[0].difference);
}

#[test]
fn a_copy_of_a_figure_is_checked_and_renewed() {
    let root = tempfile::tempdir().unwrap();
    let records = Records::read(&root.path().join("records")).unwrap();
    let (copy, other) = (root.path().join("docs/fig3.svg"), root.path().join("docs/own.svg"));
    fs::create_dir(root.path().join("docs")).unwrap();
    fs::write(&copy, "<svg/>").unwrap();
    fs::write(&other, "<svg/>").unwrap();
    let outdated = report::outdated(root.path(), &records).unwrap();
    assert_eq!(outdated.iter().map(|found| &found.path).collect::<Vec<_>>(), [&copy]);
    let out = root.path().join("report");
    report::write(&records, root.path(), &out).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), fs::read(out.join("fig3.svg")).unwrap());
    assert_eq!(fs::read_to_string(&other).unwrap(), "<svg/>");
    assert!(report::outdated(root.path(), &records).unwrap().is_empty());
}

#[test]
fn the_page_has_every_table_and_figure_and_a_row_links_to_its_run() {
    let root = tempfile::tempdir().unwrap();
    record(root.path(), 1.0, 1, &wrong(42));
    let records = Records::read(&root.path().join("records")).unwrap();
    let out = root.path().join("report");
    let written = report::write(&records, root.path(), &out).unwrap();
    let page = fs::read_to_string(&written.page).unwrap();
    for experiment in &Experiment::ALL {
        assert!(page.contains(&format!("id=\"{}\"", experiment.name)), "{}", experiment.name);
    }
    assert!(page.contains("href=\"#run-mnist-m1-3000-s1\""));
    assert!(page.contains("id=\"run-mnist-m1-3000-s1\""));
    for name in ["fig3", "fig4"] {
        assert!(out.join(format!("{name}.svg")).is_file(), "{name}");
        let png = fs::read(out.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"), "{name}");
    }
    let again = tempfile::tempdir().unwrap();
    report::write(&records, root.path(), again.path()).unwrap();
    assert_eq!(fs::read_to_string(again.path().join("index.html")).unwrap(), page);
}

//! `lsoftmax loss` agrees with the reference for every layout of the arrays.

mod program;

use std::path::{Path, PathBuf};

use program::arrays::{Array, LABELS, Layout, PLAIN, file, npy, read_npy};
use program::{Batch, failed, json, lsoftmax_in, printed, refused};
use serde_json::Value;

fn cases(fixture: &str) -> Vec<Value> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../reference/fixtures");
    let path = fixtures.join(fixture);
    let text = std::fs::read_to_string(path).expect("the fixtures are checked in");
    let fixtures: Value = serde_json::from_str(&text).expect("JSON");
    fixtures["cases"].as_array().expect("cases").clone()
}

fn vector(value: &Value) -> Vec<f64> {
    value.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("a matrix").iter().map(vector).collect()
}

/// The values of a gradient, row by row, and its shape.
fn gradient(path: &Path) -> (Vec<f64>, Vec<usize>) {
    let Array { shape, values } = read_npy(path);
    (values.into_iter().map(f64::from).collect(), shape)
}

/// f32 results against f64 ones, relative to the largest.
#[track_caller]
fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let error = (found - expected).abs() / scale;
        assert!(error < 2e-5, "{what}: {found} instead of {expected}");
    }
}

/// Every case of the reference, cycling through the layouts.
#[test]
fn loss_and_gradients_are_those_of_the_reference_in_every_layout() {
    let floats = ["<f4", "<f8", ">f4", ">f8"];
    let whole = ["<i8", "|u1", ">i2", "<i4", ">u4", ">u8", "|i1", "<u2"];
    let cases = [cases("lsoftmax.json"), cases("heads.json")].concat();
    assert!(cases.len() > 80);
    for (i, case) in cases.iter().enumerate() {
        let name = case["name"].as_str().expect("a name");
        let directory = tempfile::tempdir().expect("a directory");
        let write = |file: &str, bytes: Vec<u8>| {
            std::fs::write(directory.path().join(file), bytes).expect("a file");
        };
        let layout = |turn: usize| Layout {
            descr: floats[(i + turn) % floats.len()],
            fortran_order: (i + turn) % 3 == 1,
        };
        write("x.npy", npy(layout(0), &matrix(&case["features"]), false));
        write("w.npy", npy(layout(1), &matrix(&case["weights"]), false));
        let labels = Layout { descr: whole[i % whole.len()], fortran_order: i % 2 == 1 };
        write("y.npy", npy(labels, &[vector(&case["labels"])], true));
        let (margin, lambda) = (case["margin"].to_string(), case["lambda"].to_string());
        let mut arguments =
            vec!["loss", "--features", "x.npy", "--weights", "w.npy", "--labels", "y.npy"];
        arguments.extend(["--lambda", &lambda]);
        let head = case["head"].as_str().unwrap_or("l-softmax");
        if head != "normsoftmax" {
            arguments.extend(["--margin", &margin]);
        }
        let scale = case["scale"].to_string();
        arguments.extend(["--head", head]);
        if case["scale"].is_number() {
            arguments.extend(["--scale", &scale]);
        }
        arguments.extend(["--reduction", "none", "--grad-dir", "grad/here", "--json"]);
        if !case["bias"].is_null() {
            write("b.npy", npy(layout(2), &[vector(&case["bias"])], true));
            arguments.extend(["--bias", "b.npy"]);
        }

        let result = json(lsoftmax_in(directory.path(), &arguments));
        let loss = case["loss"].as_f64().expect("a loss");
        assert_close(name, &[result["loss"].as_f64().expect("a loss")], &[loss]);
        assert_close(name, &vector(&result["losses"]), &vector(&case["losses"]));
        let grad = directory.path().join("grad/here");
        for (file, expected) in [("features", "grad_features"), ("weights", "grad_weights")] {
            let expected = matrix(&case[expected]);
            let (found, shape) = gradient(&grad.join(format!("{file}.npy")));
            assert_eq!(shape, [expected.len(), expected[0].len()]);
            assert_close(&format!("{name}, {file}"), &found, &expected.concat());
        }
        assert_eq!(grad.join("bias.npy").exists(), !case["bias"].is_null());
        if !case["bias"].is_null() {
            let (found, shape) = gradient(&grad.join("bias.npy"));
            let expected = vector(&case["grad_bias"]);
            assert_eq!(shape, [expected.len()]);
            assert_close(&format!("{name}, bias"), &found, &expected);
        }
    }
}

#[test]
fn the_json_output_has_all_settings_and_results() {
    let batch = Batch::new();
    let result = json(batch.loss(&["--margin", "3", "--lambda", "0.5", "--json"]));
    assert_eq!(result["samples"], 3);
    assert_eq!(result["features"], 2);
    assert_eq!(result["classes"], 4);
    assert_eq!(result["head"], "l-softmax");
    assert_eq!(result["margin"], 3.0);
    assert_eq!(result["lambda"], 0.5);
    assert_eq!(result["precision"], "f32");
    assert_eq!(result["accuracy"], 1.0);
    assert_eq!(result["report"]["loss"], result["loss"]);
    assert!(result["kernel"].is_string() && result["report"]["theta"]["p50"].is_number());
    assert!(result.get("losses").is_none());
}

#[test]
fn margin_4_and_lambda_0_are_the_defaults() {
    let batch = Batch::new();
    let said = json(batch.loss(&["--margin", "4", "--lambda", "0", "--json"]));
    assert_eq!(json(batch.loss(&["--json"])), said);
}

#[test]
fn the_loss_is_the_mean_of_the_losses() {
    let batch = Batch::new();
    let result = json(batch.loss(&["--reduction", "none", "--bias", "b.npy", "--json"]));
    let losses = vector(&result["losses"]);
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert_eq!(losses.len(), 3);
    assert!((mean - result["loss"].as_f64().expect("a loss")).abs() < 1e-6);
}

#[test]
fn bf16_is_near_f32_and_says_so() {
    let batch = Batch::new();
    let exact = json(batch.loss(&["--json"]));
    let rounded = json(batch.loss(&["--precision", "bf16", "--json"]));
    assert_eq!(rounded["precision"], "bf16");
    let loss = |result: &Value| result["loss"].as_f64().expect("a loss");
    assert!((loss(&exact) - loss(&rounded)).abs() < 0.02 * loss(&exact).max(1.0));
}

#[test]
fn half_floats_are_read() {
    let batch = Batch::new();
    let expected = json(batch.loss(&["--json"]));
    // 1, 2, −1, 0.5, 0.25 and −3 in float16.
    let bits = [0x3c00u16, 0x4000, 0xbc00, 0x3800, 0x3400, 0xc200];
    let data: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    batch.write("x.npy", &file("'<f2'", false, "(3, 2)", &data));
    assert_eq!(json(batch.loss(&["--json"])), expected);
}

#[test]
fn without_json_a_few_lines_are_printed() {
    let batch = Batch::new();
    let text = printed(batch.loss(&[]));
    assert!(text.starts_with("loss ") && text.lines().count() == 3, "{text}");
    assert_eq!(printed(batch.loss(&["--reduction", "none"])).lines().count(), 6);
}

#[test]
fn gradients_replace_older_ones_and_leave_nothing_else() {
    let batch = Batch::new();
    json(batch.loss(&["--grad-dir", "grad", "--bias", "b.npy", "--json"]));
    json(batch.loss(&["--grad-dir", "grad", "--margin", "1", "--json"]));
    let mut names: Vec<_> = std::fs::read_dir(batch.path("grad"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["bias.npy", "features.npy", "weights.npy"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: PathBuf| std::fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode(batch.path("grad/features.npy")), mode(batch.path("x.npy")));
    }
}

#[test]
fn gradients_need_a_writable_directory() {
    let batch = Batch::new();
    assert!(refused(batch.loss(&["--grad-dir", "x.npy"])).starts_with("x.npy: "));
    assert!(failed(batch.loss(&["--grad-dir", "x.npy/grad"]), 1).starts_with("x.npy/grad: "));
    #[cfg(target_os = "linux")]
    failed(batch.loss(&["--grad-dir", "/proc/none"]), 1);
    std::fs::create_dir_all(batch.path("grad/weights.npy")).expect("a directory in the way");
    assert!(failed(batch.loss(&["--grad-dir", "grad"]), 1).contains("weights.npy"));
}

#[test]
fn gradients_never_overwrite_an_input() {
    let batch = Batch::new();
    std::fs::rename(batch.path("w.npy"), batch.path("weights.npy")).expect("renamed");
    let before = std::fs::read(batch.path("weights.npy")).expect("the weights");
    let output = lsoftmax_in(
        batch.directory.path(),
        &["loss", "--features", "x.npy", "--weights", "weights.npy", "--labels", "y.npy"]
            .iter()
            .chain(&["--grad-dir", "."])
            .copied()
            .collect::<Vec<_>>(),
    );
    assert!(refused(output).contains("overwrite"));
    assert_eq!(std::fs::read(batch.path("weights.npy")).expect("the weights"), before);
    assert!(!batch.path("features.npy").exists());
}

#[test]
fn bad_input_leaves_no_gradient_directory() {
    let batch = Batch::new();
    batch.write("y.npy", &npy(LABELS, &[vec![0.0, 1.0, 9.0]], true));
    refused(batch.loss(&["--grad-dir", "grad"]));
    assert!(!batch.path("grad").exists());
}

#[test]
fn a_zero_sample_has_a_loss_and_finite_gradients() {
    let batch = Batch::new();
    batch.write("x.npy", &npy(PLAIN, &vec![vec![0.0, 0.0]; 3], false));
    let result = json(batch.loss(&["--grad-dir", "grad", "--json"]));
    assert!((result["loss"].as_f64().expect("a loss") - 4f64.ln()).abs() < 1e-6);
    assert!(gradient(&batch.path("grad/features.npy")).0.iter().all(|x| x.is_finite()));
}

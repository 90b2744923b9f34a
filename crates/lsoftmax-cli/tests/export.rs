//! The files that `lsoftmax export` writes. `reference/check_onnx.py` runs them in ONNX Runtime.

mod program;

use std::fs;

use program::run::{Reference, temporary_run};
use program::{assert_says, json, lsoftmax_in, printed, refused};

/// Whether bytes contain others.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn onnx_has_the_whole_graph_with_the_weights_of_the_model() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let said = printed(lsoftmax_in(directory.path(), &["export", "run", "--out", "model.onnx"]));
    assert_says(said, &["model.onnx", "images to logits"]);
    let logits = fs::read(directory.path().join("model.onnx")).expect("a file");
    let arguments = ["export", "run", "--out", "features.onnx", "--embeddings", "--json"];
    let features = json(lsoftmax_in(directory.path(), &arguments));
    let bytes = fs::read(directory.path().join("features.onnx")).expect("a file");
    assert_eq!(features["bytes"], bytes.len());
    for name in ["Sub", "Mul", "Conv", "BatchNormalization", "PRelu", "MaxPool", "Flatten"] {
        assert!(contains(&logits, name.as_bytes()) && contains(&bytes, name.as_bytes()), "{name}");
    }
    for name in ["Gemm", "head.weight", "logits", "class_names"] {
        assert!(contains(&logits, name.as_bytes()) && !contains(&bytes, name.as_bytes()), "{name}");
    }
    // The first weights of the model, as they are in its own file.
    let weights = program::arrays::read_safetensors(&run.join("model.safetensors"));
    for name in ["units.0.weight", "units.1.gamma", "units.2.slope"] {
        let values = weights[name].values[..8].iter();
        let numbers: Vec<u8> = values.flat_map(|value| value.to_le_bytes()).collect();
        assert!(contains(&logits, &numbers) && contains(&bytes, &numbers), "{name}");
    }
}

#[test]
fn the_ending_says_the_format_or_is_refused() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let refused = |arguments: &[&str]| {
        let arguments = [&["export", "run", "--out"], arguments].concat();
        refused(lsoftmax_in(directory.path(), &arguments))
    };
    assert_says(refused(&["model.pt"]), &["model.pt", ".safetensors or .onnx"]);
    assert_says(refused(&["model.onnx", "--format", "safetensors"]), &["model.onnx"]);
    assert_says(refused(&["model.safetensors", "--embeddings"]), &["--embeddings", ".onnx"]);
    printed(lsoftmax_in(directory.path(), &["export", "run", "--out", "m.pt", "--format", "onnx"]));
    printed(lsoftmax_in(directory.path(), &["export", "run", "--out", "plain"]));
    let plain = fs::read(directory.path().join("plain")).expect("a file");
    assert_eq!(plain, fs::read(run.join("model.safetensors")).expect("a file"));
}

//! A damaged model is rejected with a reason, whatever is wrong with it.

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use program::run::{Reference, temporary_run};
use program::{assert_says, json, lsoftmax_in, refused};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

/// A finished run, and a grey image next to it.
fn trained() -> (TempDir, PathBuf) {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let image = image::GrayImage::from_pixel(28, 28, image::Luma([90]));
    image.save(directory.path().join("grey.png")).expect("a file");
    (directory, run)
}

fn predict(run: &Path) -> Output {
    let directory = run.parent().expect("a directory");
    lsoftmax_in(directory, &["predict", "run", "grey.png", "--json"])
}

/// Changes the description of a model.
fn describe(run: &Path, change: impl FnOnce(&mut Value)) {
    let path = run.join("model.json");
    let text = fs::read_to_string(&path).expect("a file");
    let mut description = serde_json::from_str(&text).expect("JSON");
    change(&mut description);
    fs::write(&path, description.to_string()).expect("a file");
}

/// As a version of the program wrote it that did not know the checksum.
fn remove_checksum(run: &Path) {
    describe(run, |description| {
        let fields = description.as_object_mut().expect("an object");
        assert!(fields.remove("weights_sha256").is_some_and(|sum| sum.is_string()));
        assert!(fields.remove("hold_out").is_some());
    });
}

/// Sets the first number of a tensor.
fn set_first(run: &Path, name: &str, value: f32) {
    let path = run.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("a file");
    let offset = {
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let tensor = file.tensor(name).expect("a tensor").data();
        tensor.as_ptr() as usize - bytes.as_ptr() as usize
    };
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(&path, bytes).expect("a file");
}

#[test]
fn a_single_changed_byte_of_the_weights_is_noticed() {
    let (_directory, run) = trained();
    let path = run.join("model.safetensors");
    let bytes = fs::read(&path).expect("a file");
    for offset in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut changed = bytes.clone();
        changed[offset] ^= 1 << (offset % 8);
        fs::write(&path, changed).expect("a file");
        assert_says(refused(predict(&run)), &["model.safetensors", "SHA-256", "copy"]);
    }
}

#[test]
fn a_model_without_checksum_is_read_and_its_weights_must_be_finite() {
    let (_directory, run) = trained();
    let expected = json(predict(&run));
    remove_checksum(&run);
    assert_eq!(json(predict(&run)), expected);
    for (name, value, words) in [
        ("head.weight", f32::NAN, ["`head.weight`", "NaN", "finite"]),
        ("units.0.weight", f32::INFINITY, ["`units.0.weight`", "inf", "finite"]),
        ("units.1.running_var", -1.0, ["`units.1.running_var`", "negative", "variance"]),
    ] {
        let (_directory, run) = trained();
        remove_checksum(&run);
        set_first(&run, name, value);
        assert_says(refused(predict(&run)), &words);
    }
    // Finite weights whose products are not.
    set_first(&run, "head.weight", f32::MAX);
    set_first(&run, "units.2.gamma", f32::MAX);
    assert_says(refused(predict(&run)), &["grey.png", "not finite", "damaged"]);
}

#[test]
fn a_mean_image_of_the_wrong_size_is_described() {
    let (_directory, run) = trained();
    describe(&run, |description| {
        description["mean"]["pixels"].as_array_mut().expect("a list").pop();
    });
    assert_says(refused(predict(&run)), &["model.json", "1 x 28 x 28 with 783 pixels", "copy"]);
    let (_directory, run) = trained();
    describe(&run, |description| description["mean"]["pixels"][5] = 1e39.into());
    assert_says(refused(predict(&run)), &["model.json", "mean image", "not finite"]);
}

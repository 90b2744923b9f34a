//! The files that `lsoftmax embed` writes.

mod program;

use std::fs;

use program::arrays::{read_npy, read_safetensors};
use program::run::{TINY, done, recipe, train};
use program::{failed, lsoftmax, printed};

#[test]
fn logits_are_those_of_the_features_before_normalisation() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().expect("a plain path").to_owned();
    let (run, plain, unit, logits) =
        (text("run"), text("plain.npy"), text("unit.npy"), text("new/logits.npy"));
    // Few steps are enough: any weights will do.
    let recipe = recipe(directory.path(), TINY);
    done(train(&[&recipe, "--steps", "5", "--precision", "f32", "--out", &run]));
    printed(lsoftmax(&["embed", &run, "mnist", "--out", &plain]));
    let embed = ["embed", &run, "mnist", "--out", &unit, "--normalise", "--logits", &logits];
    let said = printed(lsoftmax(&embed));
    assert!(said.contains("10000 images x 10 logits"), "{said}");

    let weights = &read_safetensors(&path("run/model.safetensors"))["head.weight"];
    let features = read_npy(&path("plain.npy"));
    assert_eq!(features.shape, [10_000, 8]);
    let logits = read_npy(&path("new/logits.npy"));
    assert_eq!(logits.shape, [10_000, 10]);
    assert_eq!(read_npy(&path("unit.npy")).shape, [10_000, 8]);
    assert_eq!(weights.shape, [10, 8]);
    for (x, logits) in features.rows().zip(logits.rows()) {
        for (w, logit) in weights.rows().zip(logits) {
            let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            assert!((f64::from(*logit) - sum).abs() <= 1e-6 * size, "{logit}, not {sum}");
        }
    }

    let sentence =
        failed(lsoftmax(&["embed", &run, "mnist", "--out", &plain, "--logits", &plain]), 2);
    assert!(sentence.contains("plain.npy"), "{sentence}");

    // The same file under another path, and a directory in its place.
    let other = text("new/../plain.npy");
    let sentence =
        failed(lsoftmax(&["embed", &run, "mnist", "--out", &plain, "--logits", &other]), 2);
    assert!(sentence.contains("plain.npy"), "{sentence}");
    fs::create_dir(path("directory")).expect("a directory");
    let sentence = failed(lsoftmax(&["embed", &run, "mnist", "--out", &text("directory")]), 1);
    assert!(sentence.contains("not a regular file"), "{sentence}");
    assert!(path("directory").is_dir());
}

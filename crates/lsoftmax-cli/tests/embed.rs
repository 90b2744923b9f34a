//! What `lsoftmax embed` writes.

mod program;

use std::fs;
use std::path::Path;

use program::run::{TINY, done, recipe, train};
use program::{failed, lsoftmax, printed};

fn array(path: &Path) -> (Vec<u64>, Vec<f32>) {
    let bytes = fs::read(path).expect("a file");
    let array = npyz::NpyFile::new(&bytes[..]).expect("an array");
    (array.shape().to_vec(), array.into_vec().expect("numbers"))
}

/// A tensor of a safetensors file: eight bytes of length, a JSON header, the data.
fn tensor(path: &Path, name: &str) -> Vec<f32> {
    let bytes = fs::read(path).expect("a file");
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let (header, data) = rest.split_at(length);
    let header: serde_json::Value = serde_json::from_slice(header).expect("JSON");
    let place = |i: usize| header[name]["data_offsets"][i].as_u64().expect("a place") as usize;
    let (numbers, _) = data[place(0)..place(1)].as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

#[test]
fn logits_are_products_of_the_features_as_they_are() {
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

    let weights = tensor(&path("run/model.safetensors"), "head.weight");
    let (shape, features) = array(&path("plain.npy"));
    assert_eq!(shape, [10_000, 8]);
    let (shape, logits) = array(&path("new/logits.npy"));
    assert_eq!(shape, [10_000, 10]);
    assert_eq!(array(&path("unit.npy")).0, [10_000, 8]);
    for (x, logits) in features.chunks_exact(8).zip(logits.chunks_exact(10)) {
        for (w, logit) in weights.chunks_exact(8).zip(logits) {
            let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
            assert!((f64::from(*logit) - sum).abs() <= 1e-6 * size, "{logit}, not {sum}");
        }
    }

    let sentence =
        failed(lsoftmax(&["embed", &run, "mnist", "--out", &plain, "--logits", &plain]), 2);
    assert!(sentence.contains("plain.npy"), "{sentence}");

    // However it is spelt, and whatever stands there already.
    let other = text("new/../plain.npy");
    let sentence =
        failed(lsoftmax(&["embed", &run, "mnist", "--out", &plain, "--logits", &other]), 2);
    assert!(sentence.contains("plain.npy"), "{sentence}");
    fs::create_dir(path("directory")).expect("a directory");
    let sentence = failed(lsoftmax(&["embed", &run, "mnist", "--out", &text("directory")]), 1);
    assert!(sentence.contains("something else than a file"), "{sentence}");
    assert!(path("directory").is_dir());
}

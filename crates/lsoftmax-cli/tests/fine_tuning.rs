//! `lsoftmax train` from a trained model.

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use program::run::{
    Reference, TINY, done, recipe, result, resume, temporary_run, text_of, train, undo_the_end,
};
use program::{assert_says, lsoftmax, printed, refused};
use safetensors::SafeTensors;

/// The tensors of a file of weights.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    file.tensors().into_iter().map(|(name, view)| (name, view.data().to_vec())).collect()
}

/// The finished run of [`TINY`], in `base` below a directory.
fn base(directory: &Path) -> String {
    let base = directory.join("base");
    Reference::get().put(&base);
    text_of(&base)
}

#[test]
fn frozen_units_keep_their_bits_and_the_others_learn() {
    let (directory, run) = temporary_run();
    let (base, out) = (base(directory.path()), text_of(&run));
    let recipe = recipe(directory.path(), TINY);
    let words = [&recipe, "--init", &base, "--freeze", "2", "--seed", "8", "--steps", "20"];
    let output = done(train(&[&words[..], &["--out", &out]].concat()));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("head of"), "it is the same head");
    let before = tensors(&Path::new(&base).join("model.safetensors"));
    let after = tensors(&run.join("model.safetensors"));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, bytes) in &before {
        let frozen = name.starts_with("units.0.") || name.starts_with("units.1.");
        assert_eq!(after[name] == *bytes, frozen, "{name}");
    }
    // A model that has learned these digits goes on from there.
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(run.join("summary.json")).expect("a file"))
            .expect("JSON");
    assert!(summary["test"]["error"].as_f64().expect("a number") < 45.0, "{summary}");

    // The run has a copy of what it started from: it resumes to the same bits without the original.
    let expected = result(&run);
    undo_the_end(&run);
    fs::remove_dir_all(&base).expect("it was there");
    done(resume(&run));
    assert_eq!(result(&run), expected);
    // Also from its first step.
    undo_the_end(&run);
    fs::remove_dir_all(run.join("checkpoints")).expect("it was there");
    done(resume(&run));
    assert_eq!(result(&run), expected);
    // Other initial weights are noticed.
    undo_the_end(&run);
    let copy = run.join("init.safetensors");
    let mut bytes = fs::read(&copy).expect("a file");
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&copy, bytes).expect("a file");
    let output = resume(&run).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert_says(String::from_utf8_lossy(&output.stderr), &["initial weights", "not those"]);
}

#[test]
fn with_all_units_frozen_only_the_head_learns() {
    let (directory, run) = temporary_run();
    let base = base(directory.path());
    let recipe = recipe(directory.path(), TINY);
    let words = [&recipe, "--init", &base, "--freeze", "3", "--steps", "6", "--out"];
    done(train(&[&words[..], &[&text_of(&run)]].concat()));
    let before = tensors(&Path::new(&base).join("model.safetensors"));
    for (name, bytes) in tensors(&run.join("model.safetensors")) {
        assert_eq!(before[&name] == bytes, !name.starts_with("head."), "{name}");
    }
    let sentence = refused(train(&[&recipe, "--freeze", "1"]).output().expect("it starts"));
    assert_says(sentence, &["--freeze", "--init"]);
    let words = [&recipe, "--init", &base, "--freeze", "4"];
    let sentence = refused(train(&words).output().expect("it starts"));
    assert_says(sentence, &["init.freeze", "at most 3", "but is 4"]);
}

/// Of a network with another rate, the head moves as before in the first step.
#[test]
fn the_rate_of_the_trunk_is_a_multiple_of_the_heads() {
    let (directory, _) = temporary_run();
    let base = base(directory.path());
    let text = TINY.replace("\nsteps", "\nsgd = { momentum = 0.9, weight_decay = 0 }\nsteps");
    let recipe = recipe(directory.path(), &text);
    let values = |path: &Path| -> BTreeMap<String, Vec<f32>> {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let numbers = |bytes: Vec<u8>| bytes.chunks_exact(4).map(number).collect();
        tensors(path).into_iter().map(|(name, bytes)| (name, numbers(bytes))).collect()
    };
    let after = |factor: &str| {
        let out = text_of(&directory.path().join(factor));
        let words = [&recipe, "--init", &base, "--trunk-rate", factor, "--steps", "1"];
        done(train(&[&words[..], &["--precision", "f32", "--out", &out]].concat()));
        values(&Path::new(&out).join("model.safetensors"))
    };
    let before = values(&Path::new(&base).join("model.safetensors"));
    let (whole, tenth) = (after("1"), after("0.1"));
    assert_eq!(whole["head.weight"], tenth["head.weight"]);
    for name in ["units.0.weight", "units.1.gamma", "units.2.slope"] {
        let mut moved = 0.0f32;
        for ((before, whole), tenth) in before[name].iter().zip(&whole[name]).zip(&tenth[name]) {
            moved = moved.max((whole - before).abs());
            assert!((tenth - before - 0.1 * (whole - before)).abs() < 1e-6, "{name}");
        }
        assert!(moved > 1e-4, "{name} has not moved: {moved}");
    }
}

#[test]
fn other_classes_get_a_new_head_and_the_network_of_the_run() {
    let (directory, run) = temporary_run();
    let (base, out) = (base(directory.path()), text_of(&run));
    let images = directory.path().join("images");
    for (class, grey) in [("dark", 10), ("light", 200)] {
        fs::create_dir_all(images.join(class)).expect("a directory");
        for number in 0..12 {
            let image = image::GrayImage::from_pixel(9, 9, image::Luma([grey + number]));
            image.save(images.join(class).join(format!("{number}.png"))).expect("a file");
        }
    }
    let data = text_of(&images);
    let words = ["--data", &data, "--init", &base, "--freeze", "2", "--steps", "4", "--batch", "4"];
    let output = done(train(&[&words[..], &["--out", &out]].concat()));
    assert_says(
        String::from_utf8_lossy(&output.stderr),
        &["the head of", "is not used", "10 classes, not 2"],
    );
    let (before, after) = (
        tensors(&Path::new(&base).join("model.safetensors")),
        tensors(&run.join("model.safetensors")),
    );
    assert_eq!(before["units.1.weight"], after["units.1.weight"]);
    assert_eq!(after["head.weight"].len(), 2 * 8 * 4);
    let model = |run: &Path| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(run.join("model.json")).expect("a file"))
            .expect("JSON")
    };
    let (old, new) = (model(Path::new(&base)), model(&run));
    assert_eq!(old["network"], new["network"]);
    assert_eq!(old["mean"], new["mean"], "frozen units see what they have learned from");
    printed(lsoftmax(&["eval", &out]));

    // A file of weights has no names of classes: a head of the same shape is used.
    let file = text_of(&Path::new(&base).join("model.safetensors"));
    let recipe = recipe(directory.path(), TINY);
    let other = text_of(&directory.path().join("other"));
    let words = [&recipe, "--init", &file, "--steps", "2", "--out", &other];
    let output = done(train(&words));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("head of"));

    // Weights of another network are refused, and nothing is written.
    let none = text_of(&directory.path().join("none"));
    let words = ["mnist", "--quick", "--init", &file, "--out", &none];
    let sentence = refused(train(&words).output().expect("it starts"));
    assert_says(sentence, &["does not fit the network", "units.", "use its network"]);
    assert!(!Path::new(&none).exists());
    let sentence = refused(train(&[&recipe, "--init", "nowhere"]).output().expect("it starts"));
    assert_says(sentence, &["nowhere", "neither a run nor a file", "--init"]);
}

#[test]
fn sampled_classes_with_an_averaged_model_start_from_another_and_resume_to_the_same_bits() {
    let (directory, run) = temporary_run();
    let base = base(directory.path());
    let text = TINY.replace("\nsteps", "\naverage = 0.9\nsteps");
    let recipe = recipe(directory.path(), &text);
    let words = [&recipe, "--init", &base, "--sample-rate", "0.5", "--seed", "8", "--steps", "20"];
    done(train(&[&words[..], &["--out", &text_of(&run)]].concat()));
    let expected = result(&run);
    let summary: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(run.join("summary.json")).expect("a file"))
            .expect("JSON");
    assert_eq!(summary["kept"]["averaged"], true);
    assert!(summary["test"]["error"].as_f64().expect("a number") < 45.0, "{summary}");
    for _ in 0..2 {
        undo_the_end(&run);
        done(resume(&run));
        assert_eq!(result(&run), expected);
    }
    // All weights have learned, also those of the classes that few steps have sampled.
    let before = tensors(&Path::new(&base).join("model.safetensors"));
    for (name, bytes) in tensors(&run.join("model.safetensors")) {
        assert_ne!(before[&name], bytes, "{name}");
    }
}

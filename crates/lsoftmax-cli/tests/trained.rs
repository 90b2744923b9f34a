//! A user's path from training to the use of the model, and common mistakes.

mod program;

use std::fs;
use std::path::Path;

use lsoftmax_data::{DataDir, Images, Set};
use program::arrays::{read_npy, read_safetensors};
use program::run::{TINY, checkpoints, done, recipe, resume, text_of, train};
use program::{json, lsoftmax, lsoftmax_in, printed, refused};
use serde_json::Value;

/// The built-in test images.
fn digits() -> Images {
    let nowhere = DataDir::find(Some("nowhere".into())).expect("a name is enough");
    let set = Set::named("mnist").expect("there is MNIST").read(&nowhere).expect("it is built in");
    set.test.expect("it has test images")
}

fn write_png(images: &Images, index: usize, path: &Path) {
    let image = image::GrayImage::from_raw(28, 28, images.image(index).to_vec()).expect("28 x 28");
    image.save(path).expect("a file");
}

fn length(row: &[f32]) -> f32 {
    row.iter().map(|value| value * value).sum::<f32>().sqrt()
}

/// Asserts that a report has the error, the loss and the angle of a summary.
#[track_caller]
fn assert_same_evaluation(report: &Value, summary: &Value) {
    for (key, value) in summary.as_object().expect("an object") {
        assert_eq!(report[key], *value, "{key}");
    }
}

#[test]
fn a_model_is_trained_resumed_evaluated_and_used_for_predict_embed_and_export() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let run_text = text_of(&run);
    let mut child = train(&[&recipe(directory.path(), TINY), "--out", &run_text])
        .spawn()
        .expect("the program starts");
    while checkpoints(&run).is_empty() && child.try_wait().expect("a status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("a status");
    let too_early = refused(lsoftmax(&["eval", &run_text]));
    assert!(too_early.contains("not finished") && too_early.contains("--resume"), "{too_early}");
    done(resume(&run));

    let summary = fs::read_to_string(run.join("summary.json")).expect("a file");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let found = json(lsoftmax(&["eval", &run_text, "--json"]));
    assert_eq!((&found["data"], &found["split"]), (&"mnist".into(), &"test".into()));
    assert_same_evaluation(&found, &summary["test"]);

    let digits = digits();
    let files: Vec<_> =
        (0..10).map(|index| directory.path().join(format!("{index}.png"))).collect();
    files.iter().enumerate().for_each(|(index, path)| write_png(&digits, index, path));
    let files: Vec<_> = files.iter().map(|path| text_of(path)).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let said = json(lsoftmax(&[&["predict", &run_text, "--json"], files.as_slice()].concat()));
    let said = said.as_array().expect("a list");
    assert!(said.iter().zip(&files).all(|(said, file)| said["image"] == **file), "{said:?}");
    let right = said.iter().zip(digits.labels()).filter(|(said, label)| said["class"] == **label);
    assert!(right.count() >= 7, "{said:?}");

    let out = directory.path().join("features.npy");
    let embed = ["embed", &run_text, "mnist", "--out", &text_of(&out), "--json"];
    assert_eq!(json(lsoftmax(&embed))["features"], 8);
    let plain = read_npy(&out);
    assert_eq!(plain.shape, [10_000, 8]);
    printed(lsoftmax(&[embed.as_slice(), &["--normalise"]].concat()));
    for (row, plain) in read_npy(&out).rows().zip(plain.rows()) {
        assert!((length(row) - 1.0).abs() < 1e-5, "{row:?}");
        let scaled = plain.iter().map(|value| value / length(plain));
        assert!(row.iter().zip(scaled).all(|(found, expected)| (found - expected).abs() < 1e-5));
    }

    let out = directory.path().join("model.safetensors");
    printed(lsoftmax(&["export", &run_text, "--out", &text_of(&out)]));
    let bytes = fs::read(&out).expect("a file");
    let tensors = read_safetensors(&out);
    let shapes: [(&str, &[usize]); 5] = [
        ("units.0.weight", &[8, 1, 3, 3]),
        ("units.1.weight", &[8, 8, 3, 3]),
        ("units.2.weight", &[8, 8, 7, 7]),
        ("units.2.slope", &[8]),
        ("head.weight", &[10, 8]),
    ];
    for (name, shape) in shapes {
        assert_eq!(tensors[name].shape, shape, "{name}");
    }
    assert_eq!(bytes, fs::read(run.join("model.safetensors")).expect("a file"));
}

#[test]
fn a_folder_of_images_is_trained_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let digits = digits();
    for (class, name) in ["nought", "one", "two"].iter().enumerate() {
        let folder = directory.path().join("images").join(name);
        fs::create_dir_all(&folder).expect("a directory");
        let all = digits.labels().iter().enumerate();
        for (index, _) in all.filter(|(_, label)| **label == class as u32).take(10) {
            write_png(&digits, index, &folder.join(format!("{index}.png")));
        }
    }
    let words = ["train", "--data", "images/", "--steps", "3", "--batch", "6", "--out", "run"];
    let output = lsoftmax_in(directory.path(), &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = fs::read_dir(directory.path().join("images/one")).expect("a directory").next();
    let image = text_of(&image.expect("an image").expect("an entry").path());
    let said = json(lsoftmax_in(directory.path(), &["predict", "run", &image, "--json"]));
    let name = said[0]["name"].as_str().expect("a name");
    assert!(["nought", "one", "two"].contains(&name), "{said}");

    // A tenth is held out for testing, from this and from another working directory.
    let summary = fs::read_to_string(directory.path().join("run/summary.json")).expect("a file");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["test"]["images"], 3);
    let found = json(lsoftmax(&["eval", &text_of(&directory.path().join("run")), "--json"]));
    let data = &found["data"];
    assert!(Path::new(data.as_str().expect("a path")).is_absolute(), "{data}");
    assert_eq!(found["split"], "test");
    assert_same_evaluation(&found, &summary["test"]);
    for wrong in found["wrong_images"].as_array().expect("a list") {
        let (file, label) = (&wrong["file"], wrong["label"].as_str().expect("a name"));
        let file = Path::new(file.as_str().expect("the images are files"));
        assert!(file.is_file() && file.parent().expect("a directory").ends_with(label), "{wrong}");
    }
    let found = json(lsoftmax_in(directory.path(), &["eval", "run", "--split", "train", "--json"]));
    assert_eq!(found["images"], 27);

    // One of three classes, matched by name and not by index.
    fs::create_dir(directory.path().join("some")).expect("a directory");
    fs::rename(directory.path().join("images/two"), directory.path().join("some/two"))
        .expect("moved");
    let words = ["eval", "run", "--data", "some", "--split", "train", "--json"];
    let two = json(lsoftmax_in(directory.path(), &words));
    fs::rename(directory.path().join("some/two"), directory.path().join("some/one"))
        .expect("moved");
    let one = json(lsoftmax_in(directory.path(), &words));
    assert_eq!((&two["images"], &one["images"]), (&10.into(), &10.into()));
    assert_ne!(two["loss"], one["loss"]);
    fs::rename(directory.path().join("some/one"), directory.path().join("some/ten"))
        .expect("moved");
    let sentence = refused(lsoftmax_in(directory.path(), &words));
    assert!(sentence.contains("`ten`") && sentence.contains("`nought`"), "{sentence}");
}

#[test]
fn mistakes_give_helpful_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| text_of(&directory.path().join(name));
    fs::create_dir(path("empty")).expect("a directory");
    fs::write(path("text.png"), "this is no image").expect("a file");
    fs::write(path("typo.toml"), TINY.replace("seed", "sede")).expect("a file");
    fs::write(path("low.toml"), TINY.replace("margin = 2", "margin = -2")).expect("a file");
    fs::write(path("tiny.toml"), TINY).expect("a file");
    let many = TINY.replace("validation = 200", "validation = 60000");
    fs::write(path("many.toml"), many).expect("a file");
    let out = path("run");
    let mistakes: [(&[&str], &[&str]); 15] = [
        (&["train", "minst"], &["\"minst\"", "did you mean mnist?"]),
        (&["train", "nowhere.toml"], &["nowhere.toml", "check the path"]),
        (&["train", "typo.toml"], &["`sede`", "line", "did you mean `seed`?"]),
        (&["train", "low.toml"], &["margin", "-2"]),
        (&["train", "many.toml"], &["60000"]),
        (&["train", "tiny.toml", "--margin", "-1"], &["--margin", "from 1 to 1000"]),
        (&["train", "tiny.toml", "--batch", "0"], &["batch", "from 1 to", "is 0"]),
        (&["train", "tiny.toml", "--learning-rate", "nan"], &["learning_rate.rate", "NaN"]),
        (
            &["train", "cifar10", "--data-dir", "empty"],
            &["`lsoftmax data fetch cifar10 --data-dir empty`"],
        ),
        (&["train", "--data", "empty"], &["empty", "for each class"]),
        (&["train", "--data", "nowhere"], &["nowhere", "check the path"]),
        (&["predict", "empty", "text.png"], &["empty does not contain a run"]),
        (&["export", "nowhere", "--out", "x"], &["nowhere does not contain a run"]),
        (&["export", "empty", "--out", "x.pt"], &["x.pt", ".onnx", ".safetensors"]),
        (&["train", "resnet50"], &["\"resnet50\". The recipes are"]),
    ];
    for (words, expected) in mistakes {
        let words =
            if words[0] == "train" { [words, &["--out", &out]].concat() } else { words.into() };
        let sentence = refused(lsoftmax_in(directory.path(), &words));
        for word in expected {
            assert!(sentence.contains(word), "{words:?}: no {word:?} in {sentence:?}");
        }
        assert!(!directory.path().join("run").exists(), "{words:?} left a directory");
    }
}

#[cfg(unix)]
#[test]
fn a_name_cannot_act_on_the_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    program::run::Reference::get().put(&run);
    let file = "a\nb\u{1b}[31m.png";
    write_png(&digits(), 0, &directory.path().join(file));
    let text = printed(lsoftmax_in(directory.path(), &["predict", "run", file]));
    assert!(text.starts_with(r"a\nb\u{1b}[31m.png: ") && text.lines().count() == 1, "{text:?}");
    let said = json(lsoftmax_in(directory.path(), &["predict", "run", file, "--json"]));
    assert_eq!(said[0]["image"], file);
}

#[test]
fn files_that_are_not_images_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    program::run::Reference::get().put(&run);
    fs::write(directory.path().join("text.png"), "this is no image").expect("a file");
    fs::create_dir(directory.path().join("empty")).expect("a directory");
    for file in ["text.png", "nowhere.png", "empty"] {
        let sentence = refused(lsoftmax_in(directory.path(), &["predict", "run", file]));
        assert!(sentence.starts_with(file), "{sentence}");
    }
}

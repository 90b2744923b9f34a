//! A new user's day with photographs of one's own: everything that is done with a model, in the order in which one comes to it,
//! with names that need quotes and images of every kind. Commands that the program suggests are pasted into a shell.

#![cfg(unix)]

mod program;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use image::{DynamicImage, Rgb, RgbImage};
use program::{arrays, assert_says, json, lsoftmax_in, printed, refused};
use serde_json::Value;

const RECIPE: &str = r#"
name = "photos"
data = "my photos"
augment = { pad = 2, flip = true }
validation = 6
margin = 2
lambda = { schedule = "power", base = 1000, gamma = 1.2e-1, power = 45, min = 5 }
batch = 16
steps = 30
learning_rate = { schedule = "cosine", rate = 0.05 }
keep = "best"
seed = 1
evaluate_every = 10
log_every = 10
checkpoint_every = 10

[network]
input = [3, 16, 16]
stages = [{ filters = 8, units = 1 }, { filters = 8, units = 1 }]
features = { size = 8 }
"#;

const CLASSES: [&str; 3] = ["a \"dark\" one", "it's green", "крест ✕"];

/// Draws twenty photographs per class: of different sizes, grey, with transparency, of 16 bits, as JPEG and WebP.
fn draw(folder: &Path) {
    for (class, name) in CLASSES.iter().enumerate() {
        fs::create_dir_all(folder.join(name)).expect("a directory");
        for number in 0..20u32 {
            let shade = 40 + (number * 7 % 60) as u8;
            let pixel = |x: u32, y: u32| match class {
                0 => Rgb([shade / 4; 3]),
                1 => Rgb([shade, 255 - shade, 10]),
                _ if x.abs_diff(y) < 4 => Rgb([250, shade, 250]),
                _ => Rgb([shade, 20, 130]),
            };
            let drawn = RgbImage::from_fn(18 + number, 40 - number, pixel);
            let drawn = DynamicImage::ImageRgb8(drawn);
            let (image, ending) = match number % 5 {
                0 => (DynamicImage::ImageRgba8(drawn.into_rgba8()), "png"),
                1 => (DynamicImage::ImageRgb16(drawn.into_rgb16()), "png"),
                2 => (drawn, "webp"),
                3 => (drawn, "JPG"),
                _ => (drawn, "jpeg"),
            };
            let image = if number == 15 { image.grayscale() } else { image };
            let file = folder.join(name).join(format!("photo {number}, \"$x\".{ending}"));
            image.save(file).expect("a file");
        }
    }
}

/// Runs a line in a shell, as if it were pasted.
fn paste(directory: &Path, line: &str) -> Output {
    let program = format!("lsoftmax() {{ '{}' \"$@\"; }}", env!("CARGO_BIN_EXE_lsoftmax"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{program}; {line}")]).current_dir(directory);
    shell.env_remove("LSOFTMAX_KERNEL").output().expect("the shell starts")
}

/// The commands in the text, between backticks.
fn suggested(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|part| part.starts_with("lsoftmax ")).collect()
}

#[test]
fn photographs_are_trained_on_evaluated_used_exported_and_extended() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let path = |name: &str| here.join(name);
    let ask = |words: &[&str]| lsoftmax_in(here, words);
    let ask_json = |words: &[&str]| json(ask(&[words, &["--json"]].concat()));
    draw(&path("my photos"));
    fs::write(path("photos.toml"), RECIPE).expect("a file");

    // The network; a first training, stopped by a file that is no image; and a second one.
    let layers = printed(ask(&["network", "photos.toml"]));
    assert_says(&layers, &["3x16x16", "features", "total"]);
    let notes = path("my photos/it's green/notes.txt");
    fs::write(&notes, "not a photograph").expect("a file");
    let run = "runs/photos-m2-s1";
    assert_says(refused(ask(&["train", "photos.toml"])), &["notes.txt", "convert or remove it"]);
    assert!(!path(run).exists());
    fs::remove_file(&notes).expect("it was there");
    let trained = ask(&["train", "photos.toml"]);
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let said = String::from_utf8(trained.stdout).expect("text");
    assert_says(&said, &["photos, l-softmax, m = 2: 30 steps", "held out", "(", "of 6 images)"]);

    // What it suggests, the same command again, and what that suggests.
    let commands = suggested(&said);
    assert_eq!(commands.len(), 2, "{said}");
    assert_says(printed(paste(here, commands[0])), &["my photos, test: ", "(", "of 6 images)"]);
    let photo = "'my photos/крест ✕/photo 4, \"$x\".jpeg'";
    let predicted = printed(paste(here, &commands[1].replace("IMAGE", photo)));
    assert_says(&predicted, &["photo 4, \"$x\".jpeg: ", "probability"]);
    let again = refused(ask(&["train", "photos.toml"]));
    let resumed = paste(here, suggested(&again)[0]);
    assert_eq!(String::from_utf8_lossy(&resumed.stdout), said, "{again}");

    // Longer, and then fine-tuned with another head; both runs side by side.
    let longer = ask(&["train", "--resume", run, "--steps", "60", "--json"]);
    let longer: Value = serde_json::from_slice(&longer.stdout).expect("JSON");
    assert_eq!((&longer["steps"], &longer["extended_from"]), (&60.into(), &[30].as_slice().into()));
    let tuned = ["train", "photos.toml", "--init", run, "--freeze", "1", "--head", "arcface"];
    let tuned =
        ask(&[&tuned[..], &["--scale", "16", "--steps", "20", "--out", "runs/tuned"]].concat());
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    let listed = ask_json(&["runs"]);
    let states: Vec<&Value> =
        listed.as_array().expect("a list").iter().map(|r| &r["state"]).collect();
    assert_eq!(states, ["done", "done"]);
    assert_says(
        printed(ask(&["compare", run, "runs/tuned", "--page", "runs.html"])),
        &["arcface, m = 0.5, s = 16", "l-softmax, m = 2", "runs.html"],
    );

    // It has learned; the page has the names, with their characters escaped.
    let words = ["eval", run, "--split", "train", "--page", "eval.html", "--wrong", "wrong.png"];
    let found = ask_json(&words);
    assert!(found["error"].as_f64().is_some_and(|error| error < 20.0), "{}", found["error"]);
    let page = fs::read_to_string(path("eval.html")).expect("a page");
    assert_says(&page, &["a &quot;dark&quot; one", "крест ✕"]);

    // Every image of the folder is predicted as it is alone, and from the standard input.
    let all = ask_json(&["predict", run, "my photos"]);
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 60);
    let name = "my photos/крест ✕/photo 4, \"$x\".jpeg";
    let one = all.iter().find(|one| one["image"] == name).expect("it is there");
    let piped = paste(here, &format!("cat {photo} | lsoftmax predict {run} - --json"));
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
    assert_eq!(piped[0]["probability"], one["probability"]);
    let right = all.iter().filter(|one| {
        let image = one["image"].as_str().expect("a path");
        image.split('/').nth(1) == one["name"].as_str()
    });
    assert!(right.count() > 48);

    // Features with names and labels; the nearest class of a photograph is its own.
    printed(ask(&["embed", run, "my photos", "--out", "features.npy", "--normalise"]));
    let features = arrays::read_npy(&path("features.npy"));
    assert_eq!(features.shape, [60, 8]);
    let rows: Value =
        serde_json::from_slice(&fs::read(path("features.json")).expect("a file")).expect("JSON");
    assert_eq!((&rows["names"][59], &rows["labels"][59]), (&all[59]["image"], &CLASSES[2].into()));
    let gallery = ["identify", "--model", run, "--gallery", "my photos", "--probes", name];
    assert_eq!(ask_json(&gallery)["probes"][0]["nearest"][0]["name"], CLASSES[2]);

    // Files for other programs.
    for file in ["photos.onnx", "photos.safetensors"] {
        printed(ask(&["export", run, "--out", file]));
        assert!(fs::metadata(path(file)).expect("a file").len() > 1000);
    }
    printed(ask(&["export", run, "--out", "features.onnx", "--embeddings"]));
    assert!(arrays::read_safetensors(&path("photos.safetensors")).contains_key("head.weight"));
}

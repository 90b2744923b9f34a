//! `lsoftmax` on folders of images: runs inside them, folders that are moved, images that are too large.

mod program;

use std::fs;
use std::path::Path;
use std::process::Output;

use program::run::{Reference, done, ended, result, temporary_run, text_of, train};
use program::{assert_says, command, json, lsoftmax_in, refused};

/// A folder with images of two classes.
fn photos(folder: &Path) {
    for (class, light) in [("dark", 10), ("light", 200)] {
        fs::create_dir_all(folder.join(class)).expect("a directory");
        for number in 0..12 {
            let pixel = |x: u32, y: u32| image::Luma([light + number + (x * y) as u8 % 8]);
            let image = image::GrayImage::from_fn(8, 8, pixel);
            image.save(folder.join(class).join(format!("{number}.png"))).expect("a file");
        }
    }
}

/// `lsoftmax train` with a few steps, in a working directory.
fn train_in(directory: &Path, words: &[&str]) -> Output {
    let short = ["train", "--steps", "3", "--batch", "4"];
    command(&[&short, words].concat()).current_dir(directory).output().expect("it starts")
}

#[track_caller]
fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn runs_in_the_folder_of_images_are_not_a_class() {
    let (directory, _) = temporary_run();
    let folder = directory.path().join("my photos");
    photos(&folder);
    let printed = succeeded(train_in(&folder, &["--data", "."]));
    let runs: Vec<_> = fs::read_dir(folder.join("runs")).expect("runs").flatten().collect();
    let run = text_of(&Path::new("runs").join(runs[0].file_name()));
    // What it suggests, another training, and resuming.
    assert!(printed.contains(&format!("`lsoftmax eval {run}`")), "{printed}");
    let test = json(lsoftmax_in(&folder, &["eval", &run, "--json"]));
    assert_eq!(test["images"], 2);
    succeeded(train_in(&folder, &["--data", ".", "--seed", "2"]));
    let first = result(&folder.join(&run));
    for name in ["summary.json", "model.safetensors"] {
        fs::remove_file(folder.join(&run).join(name)).expect("it was there");
    }
    succeeded(lsoftmax_in(&folder, &["train", "--resume", &run]));
    assert!(result(&folder.join(&run)) == first, "the runs differ");
    let features = text_of(&directory.path().join("features.npy"));
    let embedded = json(lsoftmax_in(&folder, &["embed", &run, ".", "--out", &features, "--json"]));
    assert_eq!(embedded["images"], 24);
}

#[test]
fn a_run_among_the_images_is_refused() {
    let (directory, _) = temporary_run();
    photos(directory.path());
    for out in [".", "dark", "dark/run"] {
        let output = train_in(directory.path(), &["--data", ".", "--out", out]);
        assert_says(refused(output), &["would be read as images", "--out"]);
    }
    assert!(!directory.path().join("dark/run").exists());
}

#[test]
fn a_run_whose_images_were_moved_is_resumed_with_their_new_place() {
    let (directory, run) = temporary_run();
    let (old, new) = (directory.path().join("old"), directory.path().join("new place"));
    photos(&old);
    let out = text_of(&run);
    succeeded(train_in(directory.path(), &["--data", "old", "--out", &out]));
    let mut expected = result(&run).without_metrics();
    for name in ["summary.json", "model.safetensors"] {
        fs::remove_file(run.join(name)).expect("it was there");
    }
    fs::rename(&old, &new).expect("moved");
    let lost = refused(train(&["--resume", &out]).output().expect("it starts"));
    assert_says(lost, &[&text_of(&old), "not there", "--data FOLDER"]);

    let resume = || {
        let mut command = train(&["--resume", &out, "--data", "new place"]);
        command.current_dir(directory.path());
        command
    };
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    let moved = new.join("dark/0.png");
    let image = fs::read(&moved).expect("an image");
    fs::copy(new.join("light/0.png"), &moved).expect("replaced");
    let (code, sentence) = ended(&resume().output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(sentence, &["new place", "not those that the run"]);
    assert_eq!(fs::read_to_string(run.join("recipe.toml")).expect("a file"), kept);

    fs::write(&moved, image).expect("restored");
    done(resume());
    let recipe = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    assert_eq!(recipe, kept.replace(&text_of(&old), &text_of(&new)));
    expected.moved(&text_of(&new));
    assert!(result(&run).without_metrics() == expected, "the runs differ");
    let eval = || lsoftmax_in(directory.path(), &["eval", &out, "--json"]);
    assert_eq!(json(eval())["images"], 2);

    // The same of a run that is done.
    fs::rename(&new, &old).expect("moved");
    refused(eval());
    refused(resume().output().expect("it starts"));
    fs::rename(&old, directory.path().join("a third")).expect("moved");
    let mut third = train(&["--resume", &out, "--data", "a third"]);
    third.current_dir(directory.path());
    done(third);
    assert_eq!(json(eval())["images"], 2);
    expected.moved(&text_of(&directory.path().join("a third")));
    assert!(result(&run).without_metrics() == expected, "the runs differ");
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_text_is_refused_before_anything_is_written() {
    use std::os::unix::ffi::OsStrExt;
    let (directory, run) = temporary_run();
    let folder = directory.path().join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    photos(&folder);
    let words = ["--data", ".", "--out", &text_of(&run)];
    let sentence = refused(train_in(&folder, &words));
    assert_says(sentence, &["not valid UTF-8", "rename"]);
    assert!(!run.exists());
}

/// The CRC-32 of a PNG's chunk.
fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

#[cfg(unix)]
#[test]
fn an_image_that_does_not_fit_into_memory_is_refused() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let path = directory.path().join("large.png");
    image::RgbImage::new(8, 8).save(&path).expect("a file");
    let mut png = fs::read(&path).expect("a file");
    png[16..24].copy_from_slice(&[20_000u32.to_be_bytes(); 2].concat());
    let checksum = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.to_be_bytes());
    fs::write(&path, png).expect("a file");
    let script = "ulimit -v 1000000; exec \"$0\" predict run large.png";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_lsoftmax")]).current_dir(directory.path());
    shell.env("RAYON_NUM_THREADS", "2").env_remove("LSOFTMAX_KERNEL");
    let sentence = refused(shell.output().expect("the shell starts"));
    assert_says(sentence, &["large.png", "20000 x 20000", "too large", "scale it down"]);
}

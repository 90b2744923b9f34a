//! `lsoftmax predict` on directories and standard input, and past images that cannot be read.

mod program;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use program::run::{Reference, temporary_run};
use program::{assert_says, command, json, lsoftmax_in, printed, refused};
use serde_json::Value;

fn write_grey(path: &Path, shade: u8) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    image::GrayImage::from_pixel(28, 28, image::Luma([shade])).save(path).expect("a file");
}

#[test]
fn a_directory_stands_for_its_images_and_bad_ones_are_named_at_the_end() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let album = directory.path().join("album");
    write_grey(&album.join("b/2.png"), 40);
    write_grey(&album.join("a/1.png"), 10);
    let good = json(lsoftmax_in(directory.path(), &["predict", "run", "album", "--json"]));
    let names = |said: &Value| -> Vec<String> {
        let images = said.as_array().expect("a list").iter();
        images.map(|image| image["image"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&good), ["album/a/1.png", "album/b/2.png"]);

    fs::write(album.join("a/bad.png"), "no image").expect("a file");
    fs::write(album.join("notes.txt"), "no image either").expect("a file");
    let words = ["predict", "run", "album", "nowhere.png", "album/b/2.png", "--json"];
    let output = lsoftmax_in(directory.path(), &words);
    assert_eq!(output.status.code(), Some(2));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(names(&said), ["album/a/1.png", "album/b/2.png", "album/b/2.png"]);
    assert_eq!(said[1], good[1]);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_says(
        &stderr,
        &[
            "3 files cannot be read, of 6 in all",
            "album/a/bad.png: ",
            "album/notes.txt: ",
            "nowhere.png: no such file",
        ],
    );
}

#[test]
fn where_no_image_can_be_read_json_is_an_empty_list() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    fs::write(directory.path().join("bad.png"), "not an image").expect("a file");
    let output = lsoftmax_in(directory.path(), &["predict", "run", "bad.png", "--json"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b"[]\n"[..]));
    let output = lsoftmax_in(directory.path(), &["predict", "run", "bad.png"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]));
}

#[test]
fn embed_replaces_no_file_but_its_own_and_names_an_empty_directory() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let at = |name: &str| directory.path().join(name);
    write_grey(&at("face.png"), 40);
    fs::write(at("face.json"), "[1, 2]").expect("a file");
    let embed = |input: &str, out: &str| {
        lsoftmax_in(directory.path(), &["embed", "run", input, "--out", out])
    };
    assert_says(refused(embed("face.png", "face.npy")), &["face.json exists"]);
    assert_eq!(fs::read_to_string(at("face.json")).expect("a file"), "[1, 2]");
    printed(embed("face.png", "rows.npy"));
    printed(embed("face.png", "rows.npy"));
    fs::create_dir(at("nothing")).expect("a directory");
    assert_says(refused(embed("nothing", "rows.npy")), &["nothing: there are no images"]);
}

#[test]
fn an_image_can_come_from_the_standard_input() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let file = directory.path().join("grey.png");
    write_grey(&file, 90);
    let expected = json(lsoftmax_in(directory.path(), &["predict", "run", "grey.png", "--json"]));
    let piped = |bytes: &[u8]| {
        let mut command = command(&["predict", "run", "-", "--json"]);
        command.current_dir(directory.path()).stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let said = json(piped(&fs::read(&file).expect("a file")));
    assert_eq!(said[0]["image"], "-");
    for key in ["class", "name", "probability", "angle"] {
        assert_eq!(said[0][key], expected[0][key], "{key}");
    }
    let bad = piped(b"no image");
    assert_eq!((bad.status.code(), &bad.stdout[..]), (Some(2), &b"[]\n"[..]));
    assert_says(String::from_utf8_lossy(&bad.stderr), &["standard input", "not a JPEG"]);
}

#[test]
fn embed_writes_the_names_and_labels_of_its_rows() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    write_grey(&directory.path().join("album/cats/1.png"), 10);
    write_grey(&directory.path().join("album/dogs/1.png"), 20);
    write_grey(&directory.path().join("album/0.png"), 30);
    let embed = |input: &str, out: &str| {
        lsoftmax_in(directory.path(), &["embed", "run", input, "--out", out])
    };
    assert_says(
        printed(embed("album", "album.npy")),
        &["3 images", "album.json: names and labels"],
    );
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(directory.path().join(name)).expect("a file");
        serde_json::from_str(&text).expect("JSON")
    };
    let rows = read("album.json");
    let names = ["album/0.png", "album/cats/1.png", "album/dogs/1.png"];
    assert_eq!(rows["names"], serde_json::json!(names));
    assert_eq!(rows["labels"], serde_json::json!([null, "cats", "dogs"]));
    printed(embed("mnist", "mnist.npy"));
    let rows = read("mnist.json");
    assert_eq!(rows["names"][9_999], "test/9999");
    let first: Vec<&str> =
        (0..5).map(|row| rows["labels"][row].as_str().expect("a class")).collect();
    assert_eq!(first, ["7", "2", "1", "0", "4"]);
    assert_says(refused(embed("mnist", "mnist.json")), &["mnist.json", ".npy"]);
}

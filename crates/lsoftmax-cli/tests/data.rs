//! `lsoftmax data`: output and errors.

mod program;

use std::path::Path;

use lsoftmax_data::MNIST;
use program::{command, failed, json, lsoftmax, printed, refused};

/// A directory of archives: the built-in MNIST files.
fn archives() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (archive, bytes) in MNIST.archives.iter().zip(MNIST.built_in.expect("it is built in")) {
        std::fs::write(directory.path().join(archive.name), bytes).expect("a file");
    }
    directory
}

fn data(arguments: &[&str], directory: &Path) -> std::process::Output {
    let directory = directory.to_str().expect("text");
    lsoftmax(&[&["data"], arguments, &["--data-dir", directory]].concat())
}

#[test]
fn the_list_has_every_set_with_location_and_source() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = printed(data(&["list"], directory.path()));
    for word in ["mnist", "built in", "cifar10", "not downloaded", "cifar-100-binary.tar.gz"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let list = json(data(&["list", "--json"], directory.path()));
    let states: Vec<_> = list.as_array().expect("a list").iter().map(|set| &set["state"]).collect();
    assert_eq!(states, ["built-in", "missing", "missing", "missing"]);
    assert_eq!(list[2]["bytes"], 170_052_171);
}

#[test]
fn a_set_is_fetched_from_a_directory_once_and_checked() {
    let directory = tempfile::tempdir().expect("a directory");
    let archives = archives();
    let from = ["fetch", "mnist", "--from", archives.path().to_str().expect("text")];
    assert!(printed(data(&from, directory.path())).contains("mnist is now in"));
    assert!(directory.path().join("mnist/train-images-idx3-ubyte.gz").exists());
    assert!(printed(data(&from, directory.path())).contains("already complete"));
    let checked = json(data(&["check", "mnist", "--json"], directory.path()));
    assert_eq!((&checked["train"], &checked["classes"]), (&60_000.into(), &10.into()));
    assert!(checked["place"].as_str().expect("text").ends_with("mnist"));
    let fetched = json(data(&["fetch", "mnist", "--json"], directory.path()));
    assert_eq!(fetched["outcome"], "already-there");
    let state = || json(data(&["list", "--json"], directory.path()))[0]["state"].clone();
    assert_eq!(state(), "there");
    let labels = directory.path().join("mnist/train-labels-idx1-ubyte.gz");
    let bytes = std::fs::read(&labels).expect("a file");
    std::fs::write(&labels, &bytes[..bytes.len() / 2]).expect("a file");
    assert_eq!(state(), "incomplete");
    let text = printed(data(&["list"], directory.path()));
    let command = format!("`lsoftmax data fetch mnist --data-dir {}`", directory.path().display());
    assert!(text.contains(&command), "{text}");
}

#[test]
fn mnist_needs_neither_directory_nor_network() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(printed(data(&["fetch", "mnist"], directory.path())).contains("built into"));
    let text = printed(data(&["check", "mnist"], directory.path()));
    assert!(text.contains("60000 training images, 10000 test images"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn the_environment_variable_sets_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = command(&["data", "list", "--json"]);
    let list = json(command.env("LSOFTMAX_DATA", directory.path()).output().expect("it starts"));
    let expected = directory.path().join("cifar10");
    assert_eq!(list[2]["place"].as_str(), expected.to_str());
}

#[test]
fn invalid_input_is_rejected() {
    let archives = archives();
    let from = archives.path().to_str().expect("text");
    let directory = tempfile::tempdir().expect("a directory");
    let text = refused(data(&["check", "cifar10"], directory.path()));
    assert!(text.contains("lsoftmax data fetch cifar10"), "{text}");
    let text = refused(data(&["fetch", "imagenet"], directory.path()));
    assert!(text.contains("imagenet") && text.contains("lsoftmax data fetch --help"), "{text}");
    assert!(
        refused(data(&["fetch", "cifar10", "--from", "nowhere"], directory.path()))
            .contains("nowhere")
    );
    assert!(
        refused(data(&["fetch", "cifar10", "--from", from], directory.path())).contains("cifar-10")
    );
    refused(data(&["fetch", "mnist", "--stall", "0"], directory.path()));
    refused(lsoftmax(&["data"]));

    std::fs::create_dir(directory.path().join("mnist")).expect("a directory");
    std::fs::write(directory.path().join("mnist/train-images-idx3-ubyte.gz"), b"half")
        .expect("a file");
    let text = refused(data(&["check", "mnist"], directory.path()));
    assert!(text.contains("train-images-idx3-ubyte.gz") && text.contains("SHA-256"), "{text}");
}

#[test]
fn an_unwritable_directory_or_unreachable_server_is_a_failure() {
    let archives = archives();
    let from = archives.path().to_str().expect("text");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, b"").expect("a file");
    let text = failed(data(&["fetch", "mnist", "--from", from], &file), 1);
    assert!(text.contains("cannot be written") && text.contains("--data-dir"), "{text}");

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = format!("http://{}/", nobody.expect("an address"));
    let fetch = ["fetch", "cifar10", "--from", &address];
    let text = failed(data(&fetch, directory.path()), 1);
    assert!(text.contains("cifar-10-binary.tar.gz"), "{text}");
}

//! `lsoftmax data`: what it prints, and how it refuses.

mod program;

use std::path::Path;

use lsoftmax_data::MNIST;
use program::{command, failed, json, lsoftmax, printed, refused};

/// A directory of archives, as somebody else's: the MNIST files that the program carries.
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
fn a_list_names_every_set_its_place_and_its_source() {
    let place = tempfile::tempdir().expect("a directory");
    let text = printed(data(&["list"], place.path()));
    for word in ["mnist", "built in", "cifar10", "not downloaded", "cifar-100-binary.tar.gz"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let list = json(data(&["list", "--json"], place.path()));
    let states: Vec<_> = list.as_array().expect("a list").iter().map(|set| &set["state"]).collect();
    assert_eq!(states, ["built-in", "missing", "missing", "missing"]);
    assert_eq!(list[2]["bytes"], 170_052_171);
}

#[test]
fn a_set_is_fetched_from_a_directory_checked_and_left_alone() {
    let place = tempfile::tempdir().expect("a directory");
    let archives = archives();
    let from = ["fetch", "mnist", "--from", archives.path().to_str().expect("text")];
    assert!(printed(data(&from, place.path())).contains("mnist is now in"));
    assert!(place.path().join("mnist/train-images-idx3-ubyte.gz").exists());
    assert!(printed(data(&from, place.path())).contains("already complete"));
    let checked = json(data(&["check", "mnist", "--json"], place.path()));
    assert_eq!((&checked["train"], &checked["classes"]), (&60_000.into(), &10.into()));
    assert!(checked["place"].as_str().expect("text").ends_with("mnist"));
    let fetched = json(data(&["fetch", "mnist", "--json"], place.path()));
    assert_eq!(fetched["outcome"], "already-there");
}

#[test]
fn mnist_needs_no_directory_and_no_network() {
    let place = tempfile::tempdir().expect("a directory");
    assert!(printed(data(&["fetch", "mnist"], place.path())).contains("built into"));
    let text = printed(data(&["check", "mnist"], place.path()));
    assert!(text.contains("60000 training images, 10000 test images"), "{text}");
    assert_eq!(std::fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn the_variable_names_the_directory() {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = command(&["data", "list", "--json"]);
    let list = json(command.env("LSOFTMAX_DATA", place.path()).output().expect("it starts"));
    let expected = place.path().join("cifar10");
    assert_eq!(list[2]["place"].as_str(), expected.to_str());
}

#[test]
fn wrong_input_is_refused() {
    let archives = archives();
    let from = archives.path().to_str().expect("text");
    let place = tempfile::tempdir().expect("a directory");
    let text = refused(data(&["check", "cifar10"], place.path()));
    assert!(text.contains("lsoftmax data fetch cifar10"), "{text}");
    let text = refused(data(&["fetch", "imagenet"], place.path()));
    assert!(text.contains("imagenet") && text.contains("lsoftmax data fetch --help"), "{text}");
    assert!(
        refused(data(&["fetch", "cifar10", "--from", "nowhere"], place.path())).contains("nowhere")
    );
    assert!(
        refused(data(&["fetch", "cifar10", "--from", from], place.path())).contains("cifar-10")
    );
    refused(data(&["fetch", "mnist", "--stall", "0"], place.path()));
    refused(lsoftmax(&["data"]));

    std::fs::create_dir(place.path().join("mnist")).expect("a directory");
    std::fs::write(place.path().join("mnist/train-images-idx3-ubyte.gz"), b"half").expect("a file");
    let text = refused(data(&["check", "mnist"], place.path()));
    assert!(text.contains("train-images-idx3-ubyte.gz") && text.contains("SHA-256"), "{text}");
}

#[test]
fn a_place_or_a_server_that_fails_is_a_failure() {
    let archives = archives();
    let from = archives.path().to_str().expect("text");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("file");
    std::fs::write(&file, b"").expect("a file");
    let text = failed(data(&["fetch", "mnist", "--from", from], &file), 1);
    assert!(text.contains("cannot be written") && text.contains("--data-dir"), "{text}");

    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = format!("http://{}/", nobody.expect("an address"));
    let fetch = ["fetch", "cifar10", "--from", &address];
    let text = failed(data(&fetch, place.path()), 1);
    assert!(text.contains("cifar-10-binary.tar.gz"), "{text}");
}

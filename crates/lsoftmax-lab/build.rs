//! Tells the program which commit it is of, where that is known.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let asked = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = asked.ok().filter(|answer| answer.status.success());
    let commit = commit.and_then(|answer| String::from_utf8(answer.stdout).ok());
    let commit = commit.map_or("unknown".into(), |commit| commit.trim().to_owned());
    println!("cargo:rustc-env=LSOFTMAX_COMMIT={commit}");
}

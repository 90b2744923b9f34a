//! Tells the program which commit it was built from, where that is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = packaged_commit().or_else(repository_commit).unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=LSOFTMAX_COMMIT={commit}");
}

/// The commit that cargo noted when it packaged the crate.
fn packaged_commit() -> Option<String> {
    let notes = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = notes.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// The commit of the repository that the crate is in, if it is this one's.
fn repository_commit() -> Option<String> {
    let git = Path::new("../../.git");
    if !git.exists() {
        return None;
    }
    for name in ["HEAD", "refs/heads"] {
        if git.join(name).exists() {
            println!("cargo:rerun-if-changed=../../.git/{name}");
        }
    }
    let answer = Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
    let commit = answer.status.success().then(|| String::from_utf8(answer.stdout).ok())??;
    Some(commit.trim().to_owned())
}

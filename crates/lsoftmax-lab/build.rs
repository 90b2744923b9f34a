//! Sets `LSOFTMAX_COMMIT` to the current Git commit, or to `unknown`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/refs/heads");
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let commit = output.ok().filter(|output| output.status.success());
    let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok());
    let commit = commit.map_or("unknown".into(), |commit| commit.trim().to_owned());
    println!("cargo:rustc-env=LSOFTMAX_COMMIT={commit}");
}

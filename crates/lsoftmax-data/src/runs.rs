//! Directories of training runs inside a folder of images.

use std::path::Path;

use crate::files::resolved;
use crate::folder::{class_folders, is_hidden};

/// The file that makes a directory that of a training run.
pub const RUN_FILE: &str = "recipe.toml";

/// Whether a directory is that of a training run, or contains nothing but such directories, as `runs`
/// does. It is not a class.
pub(crate) fn is_run_or_runs(path: &Path) -> bool {
    if path.join(RUN_FILE).is_file() {
        return true;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut visible = entries.filter(|entry| !is_hidden(&entry.file_name())).peekable();
    let is_run = |path: &Path| path.is_dir() && is_run_or_runs(path);
    visible.peek().is_some() && visible.all(|entry| is_run(&entry.path()))
}

/// Whether a run in the directory `run`, which may not exist yet, would be among the images of a folder:
/// in a class directory, or in place of a folder of classes.
pub fn is_among_images(folder: &Path, run: &Path) -> bool {
    let run = resolved(run);
    class_folders(&resolved(folder)).iter().any(|folder| {
        let Ok(inner) = run.strip_prefix(folder) else { return false };
        inner.components().next().is_none_or(|first| {
            let first = folder.join(first);
            first.is_dir() && !is_run_or_runs(&first)
        })
    })
}

//! What the fuzz targets share: a directory in memory, and inputs that are several files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory for the files of a target, in memory where the system has a place for that. The readers take
/// paths, as they do for users.
pub struct Directory(TempDir);

impl Directory {
    /// A new directory.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self(tempfile::tempdir_in(place).expect("a directory"))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file in it, and the directories that it is in.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the directory"))
            .expect("a directory");
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

/// Divides an input into files: before each but the last there are two bytes with its length.
pub fn parts<const N: usize>(mut input: &[u8]) -> [&[u8]; N] {
    std::array::from_fn(|part| {
        if part + 1 == N {
            return input;
        }
        let (length, rest) = input.split_at_checked(2).unwrap_or((&[0, 0], &[]));
        let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(rest.len());
        let (part, rest) = rest.split_at(length);
        input = rest;
        part
    })
}

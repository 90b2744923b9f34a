//! Writing arrays atomically.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use npyz::WriterBuilder;
use tempfile::NamedTempFile;

use crate::files;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written ({source}); check the directory, its permissions and the space left", path.display())]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// The system's reason.
    source: std::io::Error,
}

/// Arrays written to temporary files, which [`commit`](Self::commit) renames one by one.
///
/// If dropped without a commit, all temporary files are removed.
///
/// ```
/// use lsoftmax_data::arrays::StagedArrays;
/// let directory = tempfile::tempdir()?;
/// let mut staged = StagedArrays::new(directory.path())?;
/// staged.add("ones.npy", &[2, 3], &[1.0; 6])?;
/// assert!(!directory.path().join("ones.npy").exists());
/// staged.commit()?;
/// assert!(directory.path().join("ones.npy").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StagedArrays {
    directory: PathBuf,
    files: Vec<(NamedTempFile, PathBuf)>,
}

impl StagedArrays {
    /// Stages arrays in `directory`, which is created if it does not exist.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn new(directory: impl AsRef<Path>) -> Result<Self, WriteError> {
        let directory = directory.as_ref().to_owned();
        match std::fs::create_dir_all(&directory) {
            Ok(()) => Ok(Self { directory, files: Vec::new() }),
            Err(source) => Err(WriteError { path: directory, source }),
        }
    }

    /// Writes an array of f32, row by row, to be renamed to `name`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        // In the directory of the file to which a link points, since a file system cannot rename to another.
        let written = files::followed(&path)
            .and_then(|target| write(files::directory_of(&target), shape, values));
        match written {
            Ok(file) => {
                self.files.push((file, path));
                Ok(())
            }
            Err(source) => Err(WriteError { path, source }),
        }
    }

    /// Renames all arrays to their final names, replacing existing files.
    ///
    /// # Errors
    /// When a file cannot be renamed.
    pub fn commit(self) -> Result<(), WriteError> {
        for (file, path) in self.files {
            if let Err(source) = files::persist(file, &path) {
                return Err(WriteError { path, source });
            }
        }
        Ok(())
    }
}

fn write(directory: &Path, shape: &[usize], values: &[f32]) -> std::io::Result<NamedTempFile> {
    let file = files::temporary(directory)?;
    let shape: Vec<u64> = shape.iter().map(|side| *side as u64).collect();
    let mut buffer = BufWriter::with_capacity(1 << 18, file);
    let options = npyz::WriteOptions::<f32>::new().default_dtype();
    let mut array = options.shape(&shape).writer(&mut buffer).begin_nd()?;
    array.extend(values.iter().copied())?;
    array.finish()?;
    buffer.flush()?;
    buffer.into_inner().map_err(std::io::IntoInnerError::into_error)
}

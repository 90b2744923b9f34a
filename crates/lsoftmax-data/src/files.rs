//! Files that are either complete or absent: written beside their place, synced, then renamed.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

pub use tempfile::NamedTempFile;

/// The prefix of the name of a file that is being written.
pub const UNFINISHED: &str = ".unfinished-";

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file in a directory, removed on drop unless it is [persisted](persist).
///
/// # Errors
/// When the system refuses.
pub fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As the umask says for any new file; by default only its owner could read a temporary file.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory)
}

/// Writes parts one after the other. Afterwards the file has all of them or, after an error, its old
/// contents.
///
/// # Errors
/// When the system refuses, or something other than a file has that name.
pub fn write_whole(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = temporary(directory_of(path))?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    persist(file, path)
}

/// Syncs a file to disk, renames it to `path`, and syncs the directory. A device, a pipe or a directory is
/// not replaced.
///
/// # Errors
/// When the system refuses, or something other than a file has that name.
pub fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("something other than a file has that name"));
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory_of(path))?.sync_all()
}

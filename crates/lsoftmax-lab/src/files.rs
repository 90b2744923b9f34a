//! Files that have their names only when all of them is on the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// How the name of a file begins that is being written.
pub(crate) const UNFINISHED: &str = ".unfinished-";

/// The directory that a file is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file for a place in a directory, that goes away unless it gets a name.
pub(crate) fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As the umask says for any new file; a temporary one would be its owner's alone.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory)
}

/// Writes parts one after the other: the file has all of them, or what it had before.
pub(crate) fn write_whole(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let directory = directory_of(path);
    let mut file = temporary(directory)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    persist(file, path)
}

/// Gives a file its name, once it is on the disk, and sees to it that the name is, too. A device, a pipe
/// or a directory keeps its own.
pub(crate) fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("something else than a file has that name"));
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory_of(path))?.sync_all()
}

//! Atomic file writes: to a temporary file in the same directory, synced, then renamed.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use tempfile::NamedTempFile;

/// The prefix of the name of a file that is being written.
pub const UNFINISHED: &str = ".unfinished-";

/// The directory that a file is in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The absolute path of a file or directory that may not exist, with symbolic links resolved, to compare
/// paths.
pub fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(resolved), ..) => resolved,
        (Err(_), Some(parent), Some(name)) => resolved(parent).join(name),
        _ => path,
    }
}

/// The file that a path means: that to which a symbolic link points.
///
/// # Errors
/// When the link points to nothing.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    if is_link { path.canonicalize() } else { Ok(path.to_owned()) }
}

/// A temporary file in a directory, removed on drop unless it is [persisted](persist).
///
/// # Errors
/// When the file cannot be created.
pub fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(UNFINISHED);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Permissions of an ordinary new file (0666 minus the umask); the default is owner-only.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(directory)
}

/// Writes the concatenation of `parts` to a file, or to that to which a symbolic link points. On error, the file keeps its old
/// contents.
///
/// # Errors
/// When the file cannot be written, or `path` is not a regular file.
pub fn write_atomic(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let path = &followed(path)?;
    let mut file = temporary(directory_of(path))?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    persist(file, path)
}

/// Removes a file, if it is there.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_file(path: &Path) -> io::Result<()> {
    found(std::fs::remove_file(path))
}

/// Removes a directory and all that is in it, if it is there.
///
/// # Errors
/// When something cannot be removed.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    found(std::fs::remove_dir_all(path))
}

/// What is not there needs no removal.
fn found(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Syncs a file to disk, renames it to `path`, and syncs the directory. Devices, pipes and directories
/// are not replaced; symbolic links are [followed].
///
/// # Errors
/// When the file cannot be synced or renamed, or `path` is not a regular file.
pub fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let path = &followed(path)?;
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it exists and is not a regular file"));
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory_of(path))?.sync_all()
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_link_points_to_is_written_and_the_link_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/real"), "old").unwrap();
        symlink("elsewhere/real", at("link")).unwrap();
        write_atomic(&at("link"), &[b"new"]).unwrap();
        assert_eq!(fs::read(at("elsewhere/real")).unwrap(), b"new");
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("elsewhere/real"));
    }

    #[test]
    fn a_link_to_a_device_or_to_nothing_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        for target in ["/dev/null", "nothing"] {
            let link = directory.path().join("link");
            symlink(target, &link).unwrap();
            write_atomic(&link, &[b"new"]).unwrap_err();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(target));
            fs::remove_file(&link).unwrap();
        }
    }
}

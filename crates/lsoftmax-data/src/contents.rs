//! Reading an untrusted file, gzipped or not.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::error::{DataError, DataProblem};

/// The largest number of bytes read from one file, far above any set in these formats.
const LIMIT: u64 = 1 << 32;

/// A reader over the contents of a file, decompressed if it is gzipped.
pub(crate) struct Contents {
    path: PathBuf,
    reader: Box<dyn Read>,
    gzipped: bool,
    /// The number of decompressed bytes read so far.
    offset: u64,
}

impl Contents {
    /// The contents of the file at `path`.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::new(path, Box::new(BufReader::with_capacity(1 << 16, open(path)?)))
    }

    /// The contents of a file in memory; `path` identifies it in errors.
    pub fn packed(path: &Path, bytes: &'static [u8]) -> Result<Self, DataError> {
        Self::new(path, Box::new(bytes))
    }

    fn new(path: &Path, mut reader: Box<dyn BufRead>) -> Result<Self, DataError> {
        let start = reader.fill_buf();
        let start = start.map_err(|error| DataError::new(path, DataProblem::Read(error)))?;
        let gzipped = start.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn Read> =
            if gzipped { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
        Ok(Self { path: path.to_owned(), reader, gzipped, offset: 0 })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A problem with this file.
    pub fn error(&self, problem: DataProblem) -> DataError {
        DataError::new(&self.path, problem)
    }

    /// The next `count` bytes of a file that should have `expected` bytes in total.
    pub fn take(&mut self, count: u64, expected: u64) -> Result<Vec<u8>, DataError> {
        let bytes = self.read(count)?;
        if (bytes.len() as u64) < count {
            return Err(self.error(DataProblem::Truncated { offset: self.offset, expected }));
        }
        Ok(bytes)
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> Result<Vec<u8>, DataError> {
        let bytes = self.read(LIMIT)?;
        self.end()?;
        Ok(bytes)
    }

    /// Fails if any bytes remain.
    pub fn end(&mut self) -> Result<(), DataError> {
        let offset = self.offset;
        match self.read(1)?.is_empty() {
            true => Ok(()),
            false => Err(self.error(DataProblem::Trailing { offset })),
        }
    }

    /// The SHA-256 of the contents, in hexadecimal.
    pub fn sum(mut self) -> Result<String, DataError> {
        let mut hasher = Sha256::new();
        loop {
            let bytes = self.read(1 << 20)?;
            if bytes.is_empty() {
                return Ok(hexadecimal(hasher));
            }
            hasher.update(&bytes);
        }
    }

    /// The next `count` bytes, fewer only at the end of the file.
    fn read(&mut self, count: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let result = self.reader.by_ref().take(count.min(LIMIT)).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match result {
            Ok(_) => Ok(bytes),
            Err(error) if self.gzipped && is_corruption(&error) => {
                let reason = reason(&error).into_owned();
                Err(self.error(DataProblem::Gzip { offset: self.offset, reason }))
            }
            Err(error) => Err(self.error(DataProblem::Read(error))),
        }
    }
}

/// Opens a regular file; reading from a pipe or device could block or never end.
pub(crate) fn open(path: &Path) -> Result<File, DataError> {
    let fail = |problem| Err(DataError::new(path, problem));
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return fail(DataProblem::NotRegular),
        Err(error) if error.kind() == ErrorKind::NotFound => return fail(DataProblem::Missing),
        Err(error) => return fail(DataProblem::Read(error)),
    }
    File::open(path).or_else(|error| fail(DataProblem::Read(error)))
}

pub(crate) fn hexadecimal(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an error of the gzip decoder means corrupt data, rather than a failure to read.
fn is_corruption(error: &std::io::Error) -> bool {
    use ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

fn reason(error: &std::io::Error) -> Cow<'static, str> {
    match error.kind() {
        ErrorKind::UnexpectedEof => "it ends too early".into(),
        _ => error.to_string().into(),
    }
}

//! The contents of a file, gzipped or not, read with distrust.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

use crate::error::{DataError, DataProblem};

/// What is read of one file at most: no set in these formats comes near it.
const LIMIT: u64 = 1 << 32;

/// A file, from its first byte to its last, unpacked on the way if it is gzipped.
pub(crate) struct Contents {
    path: PathBuf,
    reader: Box<dyn Read>,
    gzipped: bool,
    /// The unpacked bytes read so far.
    offset: u64,
}

impl Contents {
    /// The contents of the file at `path`.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::new(path, Box::new(BufReader::with_capacity(1 << 16, open(path)?)))
    }

    /// The contents of a file that is in memory; `path` is what errors call it.
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

    /// The next `count` bytes of a file of `expected` in all.
    pub fn take(&mut self, count: u64, expected: u64) -> Result<Vec<u8>, DataError> {
        let bytes = self.read(count)?;
        if (bytes.len() as u64) < count {
            return Err(self.error(DataProblem::Cut { offset: self.offset, expected }));
        }
        Ok(bytes)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> Result<Vec<u8>, DataError> {
        let bytes = self.read(LIMIT)?;
        self.end()?;
        Ok(bytes)
    }

    /// Refuses what follows.
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

    /// Up to `count` bytes, fewer only at the end of the file.
    fn read(&mut self, count: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let result = self.reader.by_ref().take(count.min(LIMIT)).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match result {
            Ok(_) => Ok(bytes),
            Err(error) if self.gzipped && broken(&error) => {
                let reason = reason(&error).into_owned();
                Err(self.error(DataProblem::Gzip { offset: self.offset, reason }))
            }
            Err(error) => Err(self.error(DataProblem::Read(error))),
        }
    }
}

/// Opens a regular file; anything else might block or never end.
pub(crate) fn open(path: &Path) -> Result<File, DataError> {
    let refuse = |problem| Err(DataError::new(path, problem));
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return refuse(DataProblem::NotRegular),
        Err(error) if error.kind() == ErrorKind::NotFound => return refuse(DataProblem::Missing),
        Err(error) => return refuse(DataProblem::Read(error)),
    }
    File::open(path).or_else(|error| refuse(DataProblem::Read(error)))
}

pub(crate) fn hexadecimal(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an error of a gzip decoder is about the bytes, rather than about reading them.
fn broken(error: &std::io::Error) -> bool {
    use ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

fn reason(error: &std::io::Error) -> Cow<'static, str> {
    match error.kind() {
        ErrorKind::UnexpectedEof => "it ends too early".into(),
        _ => error.to_string().into(),
    }
}

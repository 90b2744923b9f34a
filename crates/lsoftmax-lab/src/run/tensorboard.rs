//! The log of a run as event files for TensorBoard.
//!
//! A file is a row of records (TFRecord): the length as a little-endian u64, its checksum, the data,
//! their checksum. The data are an `Event` of TensorFlow's protocol buffers, of which a scalar needs
//! the fields below. A run that goes on opens another file; TensorBoard reads all files of a
//! directory, in the order of their names.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Metric, RunError};

/// An event file, open at its end.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

/// Fields of `Event`.
const WALL_TIME: u32 = 1;
const STEP: u32 = 2;
const FILE_VERSION: u32 = 3;
const SUMMARY: u32 = 5;
const SESSION_LOG: u32 = 7;
/// The field of `Summary`.
const VALUE: u32 = 1;
/// Fields of `Summary.Value`.
const TAG: u32 = 1;
const SIMPLE_VALUE: u32 = 2;
/// The field of `SessionLog`, and what it says.
const STATUS: u32 = 1;
const START: u64 = 1;

impl TensorBoard {
    /// Opens the next event file of a directory, for a run that has done `step` steps. What older
    /// files say of later steps no longer counts.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open(directory: &Path, step: u64) -> Result<Self, RunError> {
        fs::create_dir_all(directory).map_err(RunError::io(directory, "made"))?;
        let (path, file) = next_file(directory)?;
        let mut events = Self { path, file };
        let mut version = Message::event(0);
        version.bytes(FILE_VERSION, b"brain.Event:2");
        events.write(&version)?;
        events.start(step)?;
        Ok(events)
    }

    /// Adds what a line of the log says.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn add(&mut self, metric: &Metric) -> Result<(), RunError> {
        match *metric {
            Metric::Training {
                step,
                loss,
                accuracy,
                angle,
                feature_norm,
                lambda,
                learning_rate,
                images_per_second,
            } => self.scalars(
                step,
                &[
                    ("loss", loss),
                    ("accuracy", accuracy),
                    ("angle", angle),
                    ("feature_norm", feature_norm),
                    ("lambda", lambda),
                    ("learning_rate", learning_rate),
                    ("images_per_second", images_per_second),
                ],
            ),
            Metric::Validation { step, loss, error } => {
                self.scalars(step, &[("validation/loss", loss), ("validation/error", error)])
            }
            Metric::Rollback { to, .. } => self.start(to),
        }
    }

    /// Says that the run goes on after `step` steps: readers drop this event's step and later ones.
    fn start(&mut self, step: u64) -> Result<(), RunError> {
        let mut session = Message::default();
        session.number(STATUS, START);
        let mut event = Message::event(step + 1);
        event.bytes(SESSION_LOG, &session.0);
        self.write(&event)
    }

    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), RunError> {
        let mut summary = Message::default();
        for (tag, value) in values {
            let mut scalar = Message::default();
            scalar.bytes(TAG, tag.as_bytes());
            scalar.float(SIMPLE_VALUE, *value as f32);
            summary.bytes(VALUE, &scalar.0);
        }
        let mut event = Message::event(step);
        event.bytes(SUMMARY, &summary.0);
        self.write(&event)
    }

    fn write(&mut self, event: &Message) -> Result<(), RunError> {
        let length = (event.0.len() as u64).to_le_bytes();
        let checksum = |bytes: &[u8]| masked_crc(bytes).to_le_bytes();
        let record = [&length[..], &checksum(&length), &event.0, &checksum(&event.0)].concat();
        self.file.write_all(&record).map_err(RunError::io(&self.path, "written"))
    }
}

/// A new file whose name comes after those that are there.
fn next_file(directory: &Path) -> Result<(PathBuf, File), RunError> {
    let mut number = 1;
    loop {
        let path = directory.join(format!("events.out.tfevents.{number:06}.lsoftmax"));
        match OpenOptions::new().create_new(true).write(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(RunError::io(&path, "made")(error)),
        }
    }
}

/// A message of protocol buffers, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// An event of now.
    fn event(step: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut event = Self::default();
        event.key(WALL_TIME, 1);
        event.0.extend(now.as_secs_f64().to_le_bytes());
        event.number(STEP, step);
        event
    }

    /// A field's number and the kind of what follows: 0 a varint, 1 eight bytes, 2 a length and so
    /// many bytes, 5 four bytes.
    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    fn float(&mut self, field: u32, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// Seven bits a byte, the lowest first; all but the last byte have the top bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// CRC-32C, turned and moved: a checksum of data that hold checksums would be weak.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    });
    (!crc).rotate_right(15).wrapping_add(0xA282_EAD8)
}

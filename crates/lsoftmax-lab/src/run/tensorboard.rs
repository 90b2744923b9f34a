//! The log of a run as event files for TensorBoard.
//!
//! A file is a sequence of TFRecords: the length of the data as a little-endian u64, the masked
//! CRC-32C of the length, the data, and the masked CRC-32C of the data. The data is an `Event`
//! protocol buffer of TensorFlow. A resumed run opens another file; TensorBoard reads all files of a
//! directory in name order.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use super::{Metric, Rollback, RunError};

/// An event file, open at its end.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
}

impl TensorBoard {
    /// Opens the next event file of a directory, for a run that has done `step` steps. Later steps
    /// in older files are discarded by readers.
    ///
    /// # Errors
    /// When the directory or the file cannot be created or written.
    pub fn open(directory: &Path, step: u64) -> Result<Self, RunError> {
        fs::create_dir_all(directory).map_err(RunError::io(directory, "created"))?;
        let (path, file) = next_file(directory)?;
        let mut events = Self { path, file };
        events.write(0, EventPayload::FileVersion("brain.Event:2".into()))?;
        events.start(step)?;
        Ok(events)
    }

    /// Adds the values of a line of the log.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, metric: &Metric) -> Result<(), RunError> {
        match *metric {
            Metric::Training { step, means, lambda, learning_rate, images_per_second } => {
                let mut values = vec![
                    ("loss", means.loss),
                    ("accuracy", means.accuracy),
                    ("margin_accuracy", means.margin_accuracy),
                    ("angle", means.angle),
                    ("feature_norm", means.feature_norm),
                    ("learning_rate", learning_rate),
                    ("images_per_second", images_per_second),
                ];
                values.extend(lambda.map(|lambda| ("lambda", lambda)));
                self.scalars(step, &values)
            }
            Metric::Validation { step, loss, error } => {
                self.scalars(step, &[("validation/loss", loss), ("validation/error", error)])
            }
            Metric::Test { step, loss, error } => {
                self.scalars(step, &[("test/loss", loss), ("test/error", error)])
            }
            Metric::Rollback(Rollback { to, .. }) => self.start(to),
        }
    }

    /// Records that the run continues after `step` steps: readers discard this event's step and
    /// later ones.
    fn start(&mut self, step: u64) -> Result<(), RunError> {
        let status = SessionStatus::Start.into();
        self.write(step + 1, EventPayload::SessionLog(SessionLog { status }))
    }

    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> Result<(), RunError> {
        let scalar = |(tag, value): &(&str, f64)| ScalarValue {
            tag: (*tag).into(),
            simple_value: *value as f32,
        };
        let value = values.iter().map(scalar).collect();
        self.write(step, EventPayload::Summary(SummaryMessage { value }))
    }

    /// Appends an event with the current time.
    fn write(&mut self, step: u64, what: EventPayload) -> Result<(), RunError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_time = now.as_secs_f64();
        let event = EventMessage { wall_time, step: step.cast_signed(), what: Some(what) };
        let record = tf_record(&event.encode_to_vec());
        self.file.write_all(&record).map_err(RunError::io(&self.path, "written"))
    }
}

/// A new file whose name comes after those of existing files.
fn next_file(directory: &Path) -> Result<(PathBuf, File), RunError> {
    let mut number = 1;
    loop {
        let path = directory.join(format!("events.out.tfevents.{number:06}.lsoftmax"));
        match OpenOptions::new().create_new(true).write(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(RunError::io(&path, "created")(error)),
        }
    }
}

/// Data framed by its length and checksums.
fn tf_record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checksum = |bytes: &[u8]| masked_crc32c(bytes).to_le_bytes();
    [&length[..], &checksum(&length), data, &checksum(data)].concat()
}

/// CRC-32C, rotated and offset, since the checksum of data that contains checksums would be weak.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// `tensorflow.Event`: the fields that scalars need. `required` fields are written even if zero.
#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(double, required, tag = "1")]
    wall_time: f64,
    #[prost(int64, required, tag = "2")]
    step: i64,
    #[prost(oneof = "EventPayload", tags = "3, 5, 7")]
    what: Option<EventPayload>,
}

/// `tensorflow.Event.what`.
#[derive(Clone, PartialEq, prost::Oneof)]
enum EventPayload {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(SummaryMessage),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct SummaryMessage {
    #[prost(message, repeated, tag = "1")]
    value: Vec<ScalarValue>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct ScalarValue {
    #[prost(string, required, tag = "1")]
    tag: String,
    #[prost(float, required, tag = "2")]
    simple_value: f32,
}

/// `tensorflow.SessionLog`.
#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(enumeration = "SessionStatus", required, tag = "1")]
    status: i32,
}

/// `tensorflow.SessionLog.SessionStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum SessionStatus {
    Unspecified = 0,
    Start = 1,
}

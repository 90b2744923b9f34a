//! Event files, read back by an independent reader: records, checksums and protocol buffers as their
//! specifications say, without the libraries that the writer uses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lsoftmax_data::DataDir;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::run::{Metric, Rollback, TensorBoard};
use lsoftmax_lab::train::{self, Event, Options, RunOutcome};

/// The contents of an event.
#[derive(Debug, PartialEq)]
enum Logged {
    Version(String),
    /// Readers discard this step and later ones.
    Start(u64),
    Scalars(u64, Vec<(String, f32)>),
}

/// CRC-32C by its definition: the remainder of a polynomial division over GF(2), with the highest power
/// in the lowest bit of the first byte, and with the first 32 bits and the remainder inverted.
fn crc32c(bytes: &[u8]) -> u32 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1 == 1));
    let bits = bits.chain([false; 32]).enumerate().map(|(i, bit)| bit ^ (i < 32));
    let remainder = bits.fold(0u32, |remainder, bit| {
        let divides = remainder >> 31 == 1;
        let shifted = remainder << 1 | u32::from(bit);
        if divides { shifted ^ 0x1EDC_6F41 } else { shifted }
    });
    !remainder.reverse_bits()
}

fn checked<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let data = bytes.split_off(..length).expect("the data");
    let found = bytes.split_off(..4).expect("a checksum").try_into().unwrap();
    let crc = u64::from(crc32c(data));
    let masked = ((crc >> 15 | crc << 17) + 0xa282_ead8) & 0xffff_ffff;
    assert_eq!(u64::from(u32::from_le_bytes(found)), masked);
    data
}

/// A field of a message: a number, or bytes.
#[derive(Clone, Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    fn number(&self) -> u64 {
        let Field::Number(number) = self else { panic!("{self:?} is not a number") };
        *number
    }

    fn bytes(&self) -> &[u8] {
        let Field::Bytes(bytes) = self else { panic!("{self:?} is not bytes") };
        bytes
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0.. {
        let byte = *bytes.split_off_first().expect("a byte");
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn message(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => None,
            1 => Some(8),
            2 => Some(varint(&mut bytes) as usize),
            5 => Some(4),
            other => panic!("wire type {other}"),
        };
        let field = match length {
            None => Field::Number(varint(&mut bytes)),
            Some(length) => Field::Bytes(bytes.split_off(..length).expect("the field").to_vec()),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn event(bytes: &[u8]) -> Logged {
    let fields = message(bytes);
    let field = |number| fields.iter().find(|(found, _)| *found == number).map(|(_, f)| f);
    let time = f64::from_le_bytes(field(1).expect("a time").bytes().try_into().unwrap());
    assert!((1.7e9..1e11).contains(&time), "{time} is not a time of this century");
    let step = field(2).map_or(0, Field::number);
    if let Some(version) = field(3) {
        return Logged::Version(String::from_utf8(version.bytes().to_vec()).unwrap());
    }
    if let Some(session) = field(7) {
        let status = message(session.bytes());
        assert_eq!((status.len(), status[0].0, status[0].1.number()), (1, 1, 1), "START");
        return Logged::Start(step);
    }
    let summary = message(field(5).expect("a summary").bytes());
    let scalars = summary.iter().map(|(number, value)| {
        assert_eq!(*number, 1);
        let [(1, tag), (2, value)] = &message(value.bytes())[..] else { panic!("tag and value") };
        let tag = String::from_utf8(tag.bytes().to_vec()).unwrap();
        (tag, f32::from_le_bytes(value.bytes().try_into().unwrap()))
    });
    Logged::Scalars(step, scalars.collect())
}

/// The data of every record of every file of a directory, in the order of the files' names.
fn records(directory: &Path) -> Vec<Vec<Vec<u8>>> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let records = |path: &PathBuf| {
        assert!(path.file_name().unwrap().to_str().unwrap().contains("tfevents"));
        let bytes = fs::read(path).unwrap();
        let mut bytes = &bytes[..];
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let length = checked(&mut bytes, 8).try_into().unwrap();
            let length = u64::from_le_bytes(length) as usize;
            records.push(checked(&mut bytes, length).to_vec());
        }
        records
    };
    files.iter().map(records).collect()
}

/// The events of every file of a directory, in the order of the files' names.
fn read(directory: &Path) -> Vec<Vec<Logged>> {
    let events = |records: &Vec<Vec<u8>>| records.iter().map(|bytes| event(bytes)).collect();
    records(directory).iter().map(events).collect()
}

type Curves = BTreeMap<String, BTreeMap<u64, f32>>;

/// What TensorBoard shows: the last event of a step counts, and a start discards later steps.
fn shown(files: &[Vec<Logged>]) -> Curves {
    let mut curves = Curves::new();
    for event in files.iter().flatten() {
        match event {
            Logged::Version(_) => {}
            Logged::Start(step) => {
                curves.values_mut().for_each(|curve| curve.retain(|at, _| at < step));
            }
            Logged::Scalars(step, scalars) => {
                for (tag, value) in scalars {
                    curves.entry(tag.clone()).or_default().insert(*step, *value);
                }
            }
        }
    }
    curves
}

/// The curves of the log, which is JSON lines.
fn curves(log: &Path) -> Curves {
    let mut curves = Curves::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let prefix = match line["kind"].as_str().unwrap() {
            "training" => "",
            "validation" => "validation/",
            "test" => "test/",
            _ => continue,
        };
        let step = line["step"].as_u64().unwrap();
        for (name, value) in line.as_object().unwrap() {
            if let Some(value) = value.as_f64().filter(|_| name != "step") {
                let curve = curves.entry(format!("{prefix}{name}")).or_default();
                curve.insert(step, value as f32);
            }
        }
    }
    curves
}

#[test]
fn the_reader_has_the_checksum_of_the_standard() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    // RFC 3720, B.4: 32 bytes of zeros, and of ones.
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
}

#[test]
fn events_have_the_bytes_of_the_format_zeros_included() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = TensorBoard::open(directory.path(), 0).unwrap();
    events.add(&Metric::Validation { step: 300, loss: 0.0, error: 1.5 }).unwrap();
    let files = records(directory.path());
    // Each event starts with its time: field 1, eight bytes.
    let after_time = |record: &Vec<u8>| {
        assert_eq!(record[0], 0x09);
        record[9..].to_vec()
    };
    let found: Vec<Vec<u8>> = files[0].iter().map(after_time).collect();
    let expected: [&[u8]; 3] = [
        b"\x10\x00\x1a\x0dbrain.Event:2",
        b"\x10\x01\x3a\x02\x08\x01",
        b"\x10\xac\x02\x2a\x31\
          \x0a\x16\x0a\x0fvalidation/loss\x15\x00\x00\x00\x00\
          \x0a\x17\x0a\x10validation/error\x15\x00\x00\xc0\x3f",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_rollback_discards_the_steps_after_the_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut events = TensorBoard::open(directory.path(), 0).unwrap();
    let validation = |step, error| Metric::Validation { step, loss: f64::NAN, error };
    events.add(&validation(100, 90.0)).unwrap();
    events.add(&validation(200, 89.0)).unwrap();
    let reason = "it diverged".to_owned();
    events
        .add(&Metric::Rollback(Rollback { step: 250, to: 100, lambda_floor: 1.0, reason }))
        .unwrap();
    events.add(&validation(200_000, 12.5)).unwrap();
    let files = read(directory.path());
    assert_eq!(files.len(), 1);
    assert_eq!(files[0][0], Logged::Version("brain.Event:2".into()));
    assert_eq!(files[0][4], Logged::Start(101));
    let found = &shown(&files)["validation/error"];
    assert_eq!(*found, BTreeMap::from([(100, 90.0), (200_000, 12.5)]));
}

/// A recipe for a folder with images of two classes, which it creates.
fn recipe(folder: &Path) -> Recipe {
    for (class, light) in [("dark", 40), ("light", 200)] {
        fs::create_dir_all(folder.join(class)).unwrap();
        for i in 0..12u8 {
            let pixel = |x: u32, y: u32| image::Luma([light + (i + 1) * ((x * y) as u8 % 4)]);
            let image = image::GrayImage::from_fn(8, 8, pixel);
            image.save(folder.join(class).join(format!("{i}.png"))).unwrap();
        }
    }
    let text = format!(
        r#"
        name = "tiny"
        data = {:?}
        validation = 4
        network = {{ input = [1, 8, 8], stages = [{{ filters = 4, units = 1 }}], features = {{ size = 4 }} }}
        margin = 2
        lambda = {{ schedule = "constant", value = 5 }}
        batch = 4
        steps = 9
        learning_rate = {{ schedule = "steps", rate = 0.01, factor = 0.1, at = [6] }}
        seed = 1
        precision = "f32"
        evaluate_every = 3
        test_curve = true
        log_every = 1
        checkpoint_every = 4
        "#,
        folder.display().to_string()
    );
    Recipe::from_toml(&text, "tiny.toml").unwrap()
}

#[test]
fn a_run_that_is_stopped_and_resumed_has_the_curves_of_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, out) = (directory.path().join("images"), directory.path().join("run"));
    let stop = Arc::new(AtomicBool::new(false));
    let data = DataDir::find(Some(directory.path().to_owned())).unwrap();
    let mut options = Options { tensorboard: true, stop: Arc::clone(&stop), ..Options::new(data) };
    let mut stop_early = |event: Event<'_>| {
        if let Event::Stepped { step: 6 } = event {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let ended = train::start(recipe(&folder), &out, &options, &mut stop_early).unwrap();
    assert!(matches!(ended, RunOutcome::Interrupted { step: 6 }));
    // As if it had been killed after the checkpoint of step 4 instead.
    fs::remove_file(out.join("checkpoints/000000006.checkpoint")).unwrap();

    options.tensorboard = false;
    stop.store(false, Ordering::Relaxed);
    let ended = train::resume(&out, &options, &mut |_| {}).unwrap();
    assert!(matches!(ended, RunOutcome::Done(_)));
    let files = read(&out.join("tensorboard"));
    assert_eq!(files.len(), 2);
    assert_eq!(files[1][1], Logged::Start(5));
    let found = shown(&files);
    assert_eq!(found.len(), 12);
    assert_eq!(found, curves(&out.join("metrics.jsonl")));
    assert_eq!(found["loss"].len(), 9);
    for tag in ["validation/error", "test/error", "test/loss"] {
        assert_eq!(found[tag].keys().copied().collect::<Vec<_>>(), [3, 6, 9], "{tag}");
    }
    assert_eq!(found["margin_accuracy"].len(), 9);
}

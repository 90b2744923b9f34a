//! The header of an `.npy` file: type, order and shape.
//!
//! The reader of `npyz` trusts the header: it allocates any length, follows any nesting, and does not
//! check the product of the shape for overflow. This module first limits length and nesting and then
//! uses the same parser as `npyz`, whose run time doubles with each level of nested brackets and
//! triples with each level of nested braces.

use std::io::{ErrorKind, Read};

use npyz::{TypeChar, TypeStr};
use py_literal::Value;

use super::Role;
use super::error::{ArrayProblem, ShapeText};

/// The longest header accepted, as in numpy.
pub const HEADER_LIMIT: usize = 10_000;

/// The deepest nesting of brackets accepted. A plain array has two levels, a structured one a few more.
const NESTING_LIMIT: usize = 6;

/// The largest number of dimensions, as in numpy.
const RANK_LIMIT: usize = 64;

/// A parsed header.
pub struct NpyHeader {
    pub dtype: TypeStr,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
    /// The length of the header, which is the offset of the first number.
    pub bytes: u64,
}

impl NpyHeader {
    /// Reads the header of an array for `role`, up to the first number.
    pub fn read(mut file: impl Read, role: Role) -> Result<Self, ArrayProblem> {
        let mut magic = [0; 8];
        let found = fill(&mut file, &mut magic)?;
        if magic.starts_with(b"PK\x03\x04") || magic.starts_with(b"PK\x05\x06") {
            return Err(ArrayProblem::Npz);
        }
        if found < 6 || !magic.starts_with(b"\x93NUMPY") {
            return Err(ArrayProblem::NotNpy);
        }
        if found < magic.len() {
            return Err(ArrayProblem::HeaderTruncated);
        }
        let mut length = [0; 4];
        let length_bytes = match (magic[6], magic[7]) {
            (1, 0) => 2,
            (2 | 3, 0) => 4,
            (major, minor) => return Err(ArrayProblem::Version(major, minor)),
        };
        exactly(&mut file, &mut length[..length_bytes])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > HEADER_LIMIT {
            return Err(ArrayProblem::HeaderLength(length));
        }
        let mut text = vec![0; length];
        exactly(&mut file, &mut text)?;
        let bytes = (magic.len() + length_bytes + length) as u64;
        Self::parse(&text, role, bytes)
    }

    fn parse(text: &[u8], role: Role, bytes: u64) -> Result<Self, ArrayProblem> {
        // Only field names can contain non-ASCII characters, and structured arrays are rejected anyway.
        let text = String::from_utf8_lossy(text);
        let braces = text.bytes().filter(|byte| *byte == b'{').count();
        if nesting(&text) > NESTING_LIMIT || braces > 1 {
            return Err(ArrayProblem::NpyHeader("it is nested too deeply"));
        }
        let value: Value = text
            .trim()
            .parse()
            .map_err(|_| ArrayProblem::NpyHeader("it is not a Python literal"))?;
        let Value::Dict(entries) = value else {
            return Err(ArrayProblem::NpyHeader("it is not a dictionary"));
        };
        let get = |name: &str| {
            entries.iter().find(|(key, _)| matches!(key, Value::String(key) if key == name))
        };
        let (Some((_, descr)), Some((_, order)), Some((_, shape))) =
            (get("descr"), get("fortran_order"), get("shape"))
        else {
            return Err(ArrayProblem::NpyHeader("it lacks descr, fortran_order or shape"));
        };
        let Value::Boolean(fortran_order) = *order else {
            return Err(ArrayProblem::NpyHeader("its fortran_order is not True or False"));
        };
        let dtype = match descr {
            Value::String(descr) => descr
                .parse::<TypeStr>()
                .map_err(|_| ArrayProblem::NpyHeader("its descr is no dtype"))?,
            Value::List(_) | Value::Tuple(_) => return Err(ArrayProblem::Structured(role)),
            _ => return Err(ArrayProblem::NpyHeader("its descr is no dtype")),
        };
        if dtype.type_char() == TypeChar::Object {
            return Err(ArrayProblem::Objects(role));
        }
        Ok(Self { dtype, fortran_order, shape: parse_shape(shape)?, bytes })
    }

    /// The number of entries and their total size in bytes.
    pub fn size(&self) -> Result<(usize, u64), ArrayProblem> {
        let width = self.dtype.num_bytes().unwrap_or(usize::MAX) as u64;
        let entries = self.shape.iter().try_fold(1u64, |size, side| size.checked_mul(*side));
        let sizes = entries.and_then(|entries| {
            // An entry takes up to eight bytes in memory.
            let in_memory = entries.checked_mul(8)?;
            isize::try_from(in_memory).ok()?;
            Some((usize::try_from(entries).ok()?, entries.checked_mul(width)?))
        });
        sizes.ok_or_else(|| ArrayProblem::ShapeTooLarge(ShapeText(self.shape.clone())))
    }
}

fn parse_shape(shape: &Value) -> Result<Vec<u64>, ArrayProblem> {
    let (Value::Tuple(sides) | Value::List(sides)) = shape else {
        return Err(ArrayProblem::NpyHeader("its shape is not a tuple"));
    };
    if sides.len() > RANK_LIMIT {
        return Err(ArrayProblem::NpyHeader("its shape has too many dimensions"));
    }
    let side = |side: &Value| match side {
        Value::Integer(side) => u64::try_from(side).ok(),
        _ => None,
    };
    let sides: Option<_> = sides.iter().map(side).collect();
    sides.ok_or(ArrayProblem::NpyHeader("its shape is not made of integers from 0 to 2^64 − 1"))
}

/// The maximum nesting depth of brackets, including those inside strings.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn exactly(mut file: impl Read, bytes: &mut [u8]) -> Result<(), ArrayProblem> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => ArrayProblem::HeaderTruncated,
        _ => ArrayProblem::Read(error),
    })
}

/// Reads until `bytes` is full or the file ends; returns the number of bytes read.
fn fill(file: impl Read, bytes: &mut [u8]) -> Result<usize, ArrayProblem> {
    let mut start = Vec::with_capacity(bytes.len());
    file.take(bytes.len() as u64).read_to_end(&mut start).map_err(ArrayProblem::Read)?;
    bytes[..start.len()].copy_from_slice(&start);
    Ok(start.len())
}

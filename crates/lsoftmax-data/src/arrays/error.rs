//! Errors in `.npy` files.

use std::fmt;
use std::path::PathBuf;

use super::Role;
use super::header::HEADER_LIMIT;

/// An error in an array's file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ArrayError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: ArrayProblem,
}

/// What is wrong with an array's file.
#[derive(Debug, thiserror::Error)]
pub enum ArrayProblem {
    /// The file does not exist.
    #[error("no such file; check the path")]
    Missing,
    /// The path is a directory.
    #[error("this is a directory; give the path of an .npy file")]
    Directory,
    /// A pipe, a socket or a device, whose size cannot be compared with the header.
    #[error("this is not a regular file; save the array to one first")]
    NotRegular,
    /// The file could not be read.
    #[error("cannot be read ({0}); check the file and its permissions")]
    Read(std::io::Error),
    /// The file does not start with numpy's magic bytes.
    #[error("this is not an .npy file; write it with numpy.save")]
    NotNpy,
    /// An `.npz` (zip) archive.
    #[error("this is an .npz archive; save each array in its own file with numpy.save")]
    Npz,
    /// An unsupported version of the format.
    #[error(
        "version {0}.{1} of the .npy format is not supported; write the file with numpy.save, which uses 1.0 to 3.0"
    )]
    Version(u8, u8),
    /// A header longer than any plain array needs.
    #[error(
        "its header has {0} bytes, but a plain array needs no more than {HEADER_LIMIT}; write it again with numpy.save"
    )]
    HeaderLength(usize),
    /// The file ends inside the header.
    #[error("the file is truncated inside its header; write it again")]
    HeaderTruncated,
    /// A header that does not describe an array.
    #[error("its header does not describe an array ({0}); write it again with numpy.save")]
    NpyHeader(&'static str),
    /// Records with fields.
    #[error(
        "it contains records with fields (a structured dtype), but {0} must be plain numbers; save a single field"
    )]
    Structured(Role),
    /// Pickled objects.
    #[error("it contains Python objects, which are never unpickled; convert it with .astype({}) before saving", dtype_of(*.0))]
    Objects(Role),
    /// Numbers of the wrong type.
    #[error("it contains {found}, but {role} must be {}; convert it with .astype({}) before saving", types_of(*.role), dtype_of(*.role))]
    Type {
        /// The type in the file.
        found: String,
        /// What the array is for.
        role: Role,
    },
    /// The wrong number of dimensions.
    #[error("{role} must have {}, but the array's shape is {shape}{}", .role.dimensions(), rank_hint(*.role, .shape))]
    Rank {
        /// What the array is for.
        role: Role,
        /// The shape in the file.
        shape: ShapeText,
    },
    /// A dimension is zero.
    #[error("its shape {0} is empty; at least one sample, feature and class are needed")]
    Empty(ShapeText),
    /// More entries than the address space can hold.
    #[error("its header claims the shape {0}, which is too large for any file; write it again")]
    ShapeTooLarge(ShapeText),
    /// Fewer bytes than the header claims.
    #[error(
        "its shape {shape} takes {expected} bytes, but {found} follow the header; the file is truncated, write it again"
    )]
    Truncated {
        /// The shape that the header claims.
        shape: ShapeText,
        /// The bytes of that shape.
        expected: u64,
        /// The number of bytes after the header.
        found: u64,
    },
    /// More bytes than the header claims.
    #[error(
        "its shape {shape} takes {expected} bytes, but {found} follow the header; save one array per file"
    )]
    TrailingBytes {
        /// The shape that the header claims.
        shape: ShapeText,
        /// The bytes of that shape.
        expected: u64,
        /// The number of bytes after the header.
        found: u64,
    },
    /// Not enough memory.
    #[error("its {0} numbers do not fit into memory; use a smaller array")]
    Memory(usize),
    /// NaN or infinite.
    #[error("{entry} is {value}; replace or remove it, only finite numbers can be used")]
    NotFinite {
        /// The first such entry.
        entry: String,
        /// Its value.
        value: f64,
    },
    /// Finite, but beyond f32.
    #[error(
        "{entry} is {value:e}, too large for f32 (at most 3.4e38), in which arrays are read; rescale the array"
    )]
    TooLarge {
        /// The first such entry.
        entry: String,
        /// Its value.
        value: f64,
    },
    /// A label out of range.
    #[error("the label of sample {sample} is {label}, but there are {classes} classes, 0 to {}; check that labels start at 0", .classes - 1)]
    Label {
        /// The first such sample.
        sample: usize,
        /// Its label.
        label: i128,
        /// The number of classes.
        classes: usize,
    },
}

fn types_of(role: Role) -> &'static str {
    match role {
        Role::Labels => "integers (int8 to int64 or uint8 to uint64)",
        _ => "float32, float64 or float16",
    }
}

fn dtype_of(role: Role) -> &'static str {
    match role {
        Role::Labels => "numpy.int64",
        _ => "numpy.float32",
    }
}

fn rank_hint(role: Role, shape: &ShapeText) -> &'static str {
    let column = role.rank() == 1 && shape.0.len() == 2 && shape.0.contains(&1);
    if column { "; flatten it with .ravel()" } else { "; reshape it before saving" }
}

/// A shape as numpy prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeText(pub Vec<u64>);

impl fmt::Display for ShapeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.0.iter().map(u64::to_string).collect();
        match sizes.as_slice() {
            [only] => write!(f, "({only},)"),
            _ => write!(f, "({})", sizes.join(", ")),
        }
    }
}

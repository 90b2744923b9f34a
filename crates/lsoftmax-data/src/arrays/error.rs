//! What can be wrong with an array's file, in sentences.

use std::fmt;
use std::path::PathBuf;

use super::Role;
use super::header::HEADER_LIMIT;

/// Why an array was refused.
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
    /// Nothing has that name.
    #[error("there is no such file; check the path")]
    Missing,
    /// A directory has that name.
    #[error("this is a directory; name the .npy file itself")]
    Directory,
    /// A pipe, a socket or a device: its size cannot be compared with its header.
    #[error("this is not a regular file; save the array to one first")]
    NotRegular,
    /// The system refused.
    #[error("cannot be read ({0}); check the file and its permissions")]
    Read(std::io::Error),
    /// The first bytes are not numpy's.
    #[error("this is not an .npy file; write it with numpy.save")]
    NotNpy,
    /// A zip archive.
    #[error("this is an .npz archive; save each array in its own file with numpy.save")]
    Npz,
    /// A version of the format that does not exist yet.
    #[error(
        "the .npy format version {0}.{1} is not known here; write the file with numpy.save, which uses 1.0 to 3.0"
    )]
    Version(u8, u8),
    /// A header longer than any plain array needs.
    #[error(
        "its header claims {0} bytes, but that of a plain array needs no more than {HEADER_LIMIT}; write it again with numpy.save"
    )]
    HeaderLength(usize),
    /// The file ends before the header does.
    #[error("the file ends inside its header; it was cut short, write it again")]
    HeaderCut,
    /// A header that is not the one of an array.
    #[error("its header does not describe an array ({0}); write it again with numpy.save")]
    NpyHeader(&'static str),
    /// Records with fields.
    #[error(
        "it holds records with fields (a structured dtype), but {0} must be plain numbers; save the one field that is meant"
    )]
    Structured(Role),
    /// Pickled objects.
    #[error("it holds Python objects, which are never unpickled here; convert it with .astype({}) before saving", dtype_of(*.0))]
    Objects(Role),
    /// Numbers of a type that the role cannot have.
    #[error("it holds {found}, but {role} must be {}; convert it with .astype({}) before saving", types_of(*.role), dtype_of(*.role))]
    Type {
        /// What is there.
        found: String,
        /// What the array is for.
        role: Role,
    },
    /// Too many or too few dimensions.
    #[error("{role} must have {}, but the array's shape is {shape}{}", .role.dimensions(), rank_hint(*.role, .shape))]
    Rank {
        /// What the array is for.
        role: Role,
        /// What is there.
        shape: ShapeText,
    },
    /// A dimension is zero.
    #[error("its shape {0} leaves it empty; at least one sample, feature and class are needed")]
    Empty(ShapeText),
    /// More entries than a machine can address.
    #[error(
        "its header claims the shape {0}, which is more than any file can hold; write it again"
    )]
    Immense(ShapeText),
    /// Fewer bytes than the header claims.
    #[error(
        "its shape {shape} takes {expected} bytes, but {found} follow the header; the file was cut short, write it again"
    )]
    Short {
        /// The shape that the header claims.
        shape: ShapeText,
        /// The bytes of that shape.
        expected: u64,
        /// The bytes that are there.
        found: u64,
    },
    /// More bytes than the header claims.
    #[error(
        "its shape {shape} takes {expected} bytes, but {found} follow the header; save one array a file"
    )]
    Long {
        /// The shape that the header claims.
        shape: ShapeText,
        /// The bytes of that shape.
        expected: u64,
        /// The bytes that are there.
        found: u64,
    },
    /// Not enough memory.
    #[error("its {0} numbers do not fit into memory; give fewer at a time")]
    Memory(usize),
    /// NaN or infinite.
    #[error("{place} is {value}; replace or remove it, only finite numbers have a loss")]
    NotFinite {
        /// The first such entry.
        place: String,
        /// Its value.
        value: f64,
    },
    /// Finite, but beyond f32.
    #[error(
        "{place} is {value:e}, too large for f32 (at most 3.4e38), in which the loss is computed; rescale the array"
    )]
    TooLarge {
        /// The first such entry.
        place: String,
        /// Its value.
        value: f64,
    },
    /// A label that names no class.
    #[error("the label of sample {sample} is {label}, but labels must name one of the {classes} classes, 0 to {}; check that labels count from 0", .classes - 1)]
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
        Role::Labels => "whole numbers (int8 to int64 or uint8 to uint64)",
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

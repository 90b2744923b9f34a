//! Reading the numbers of an array.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use npyz::half::f16;
use npyz::{DType, Deserialize, TypeChar, TypeRead, TypeStr};

use super::Role;
use super::error::{ArrayError, ArrayProblem, ShapeText};
use super::header::NpyHeader;

/// An array whose header has been read and checked, but not its numbers.
///
/// ```no_run
/// use lsoftmax_data::arrays::{ArrayFile, Role};
/// let file = ArrayFile::open("x.npy", Role::Features)?;
/// let (samples, features) = (file.rows(), file.columns());
/// let values: Vec<f32> = file.floats()?; // row by row
/// # Ok::<(), lsoftmax_data::arrays::ArrayError>(())
/// ```
#[derive(Debug)]
pub struct ArrayFile {
    path: PathBuf,
    role: Role,
    rows: usize,
    columns: usize,
    fortran_order: bool,
    dtype: TypeStr,
    data: BufReader<File>,
}

impl ArrayFile {
    /// Opens an array for `role` and checks type, rank, shape and the file's size.
    ///
    /// # Errors
    /// When the file cannot be read, is not an array, or does not fit the role.
    pub fn open(path: impl AsRef<Path>, role: Role) -> Result<Self, ArrayError> {
        let path = path.as_ref().to_owned();
        match Self::open_checked(&path, role) {
            Ok(file) => Ok(file),
            Err(problem) => Err(ArrayError { path, problem }),
        }
    }

    fn open_checked(path: &Path, role: Role) -> Result<Self, ArrayProblem> {
        let system = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => ArrayProblem::Missing,
            ErrorKind::IsADirectory => ArrayProblem::Directory,
            _ => ArrayProblem::Read(error),
        };
        // Checked before opening, because opening a pipe blocks until there is a writer.
        let metadata = std::fs::metadata(path).map_err(system)?;
        if metadata.is_dir() {
            return Err(ArrayProblem::Directory);
        }
        if !metadata.is_file() {
            return Err(ArrayProblem::NotRegular);
        }
        let file = File::open(path).map_err(system)?;
        let file_bytes = file.metadata().map_err(ArrayProblem::Read)?.len();
        let mut data = BufReader::with_capacity(1 << 18, file);
        let header = NpyHeader::read(&mut data, role)?;

        if !is_type_for(role, &header.dtype) {
            return Err(ArrayProblem::Type { found: type_in_words(&header.dtype), role });
        }
        let shape = || ShapeText(header.shape.clone());
        let (rows, columns) = match (role.rank(), header.shape.as_slice()) {
            (1, [rows]) => (*rows, 1),
            (2, [rows, columns]) => (*rows, *columns),
            _ => return Err(ArrayProblem::Rank { role, shape: shape() }),
        };
        if rows == 0 || columns == 0 {
            return Err(ArrayProblem::Empty(shape()));
        }
        let (_, expected) = header.size()?;
        let found = file_bytes.saturating_sub(header.bytes);
        if found < expected {
            return Err(ArrayProblem::Truncated { shape: shape(), expected, found });
        }
        if found > expected {
            return Err(ArrayProblem::TrailingBytes { shape: shape(), expected, found });
        }
        Ok(Self {
            path: path.to_owned(),
            role,
            // `size` has checked that they fit.
            rows: rows as usize,
            columns: columns as usize,
            fortran_order: header.fortran_order,
            dtype: header.dtype,
            data,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first dimension.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The second dimension; 1 for a one-dimensional array.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The numbers as f32, row by row.
    ///
    /// # Errors
    /// When a number is not finite or does not fit into f32, when the array contains integers, or when
    /// the file cannot be read.
    pub fn floats(self) -> Result<Vec<f32>, ArrayError> {
        let role = self.role;
        let narrow = |row, column, value: f64| {
            let narrowed = value as f32;
            if narrowed.is_finite() {
                return Ok(narrowed);
            }
            let entry = role.describe_entry(row, column);
            Err(match value.is_finite() {
                true => ArrayProblem::TooLarge { entry, value },
                false => ArrayProblem::NotFinite { entry, value },
            })
        };
        match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Float, 2) => self.read(|row, column, x: f16| narrow(row, column, x.into())),
            (TypeChar::Float, 4) => self.read(|row, column, x: f32| narrow(row, column, x.into())),
            _ => self.read(narrow),
        }
    }

    /// The numbers as labels of `classes` classes.
    ///
    /// # Errors
    /// When a label is out of range, when the array does not contain integers, or when the file cannot
    /// be read.
    pub fn labels(self, classes: usize) -> Result<Vec<i64>, ArrayError> {
        let check = |sample, label: i128| match i64::try_from(label) {
            Ok(y) if (0..classes as i128).contains(&label) => Ok(y),
            _ => Err(ArrayProblem::Label { sample, label, classes }),
        };
        match (self.dtype.type_char(), self.dtype.size_field()) {
            (TypeChar::Int, 1) => self.read(|row, _, y: i8| check(row, y.into())),
            (TypeChar::Int, 2) => self.read(|row, _, y: i16| check(row, y.into())),
            (TypeChar::Int, 4) => self.read(|row, _, y: i32| check(row, y.into())),
            (TypeChar::Uint, 1) => self.read(|row, _, y: u8| check(row, y.into())),
            (TypeChar::Uint, 2) => self.read(|row, _, y: u16| check(row, y.into())),
            (TypeChar::Uint, 4) => self.read(|row, _, y: u32| check(row, y.into())),
            (TypeChar::Uint, _) => self.read(|row, _, y: u64| check(row, y.into())),
            _ => self.read(|row, _, y: i64| check(row, y.into())),
        }
    }

    /// Reads all entries, passes each through `convert` with its row and column, and returns them
    /// row by row.
    fn read<T: Deserialize, V: Copy + Default>(
        mut self,
        convert: impl Fn(usize, usize, T) -> Result<V, ArrayProblem>,
    ) -> Result<Vec<V>, ArrayError> {
        self.entries(convert).map_err(|problem| ArrayError { path: self.path, problem })
    }

    fn entries<T: Deserialize, V: Copy + Default>(
        &mut self,
        convert: impl Fn(usize, usize, T) -> Result<V, ArrayProblem>,
    ) -> Result<Vec<V>, ArrayProblem> {
        let (rows, columns) = (self.rows, self.columns);
        let found = || type_in_words(&self.dtype);
        let reader = T::reader(&DType::new_scalar(self.dtype.clone()))
            .map_err(|_| ArrayProblem::Type { found: found(), role: self.role })?;
        let mut next = || reader.read_one(&mut self.data).map_err(ArrayProblem::Read);
        let entries = rows * columns;
        let mut values = Vec::new();
        values.try_reserve_exact(entries).map_err(|_| ArrayProblem::Memory(entries))?;
        if self.fortran_order {
            values.resize(entries, V::default());
            for column in 0..columns {
                for row in 0..rows {
                    values[row * columns + column] = convert(row, column, next()?)?;
                }
            }
        } else {
            for row in 0..rows {
                for column in 0..columns {
                    values.push(convert(row, column, next()?)?);
                }
            }
        }
        Ok(values)
    }
}

fn is_type_for(role: Role, dtype: &TypeStr) -> bool {
    match role {
        Role::Labels => matches!(dtype.type_char(), TypeChar::Int | TypeChar::Uint),
        _ => dtype.type_char() == TypeChar::Float && matches!(dtype.size_field(), 2 | 4 | 8),
    }
}

fn type_in_words(dtype: &TypeStr) -> String {
    let bits = dtype.size_field().saturating_mul(8);
    match dtype.type_char() {
        TypeChar::Bool => "booleans".into(),
        TypeChar::Int => format!("integers (int{bits})"),
        TypeChar::Uint => format!("integers (uint{bits})"),
        TypeChar::Float => format!("floating-point numbers (float{bits})"),
        TypeChar::Complex => format!("complex numbers (complex{bits})"),
        TypeChar::TimeDelta | TypeChar::DateTime => "dates or times".into(),
        TypeChar::ByteStr | TypeChar::UnicodeStr => "strings".into(),
        _ => format!("raw bytes ({dtype})"),
    }
}

//! Array files: `.npy` files as input, `.npy` and safetensors files as output of the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use npyz::NpyFile;
use safetensors::SafeTensors;

/// The data type and order of an array in its file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub descr: &'static str,
    pub fortran_order: bool,
}

pub const PLAIN: Layout = Layout { descr: "<f4", fortran_order: false };
pub const LABELS: Layout = Layout { descr: "<i8", fortran_order: false };

/// The bytes of an array file. With `flat`, a single row makes it one-dimensional.
pub fn npy(layout: Layout, rows: &[Vec<f64>], flat: bool) -> Vec<u8> {
    let columns = rows.first().map_or(0, Vec::len);
    let values: Vec<f64> = match layout.fortran_order {
        true => (0..columns).flat_map(|j| rows.iter().map(move |row| row[j])).collect(),
        false => rows.concat(),
    };
    let shape = if flat { format!("({columns},)") } else { format!("({}, {columns})", rows.len()) };
    let data: Vec<u8> = values.iter().flat_map(|value| number(layout.descr, *value)).collect();
    file(&format!("'{}'", layout.descr), layout.fortran_order, &shape, &data)
}

/// A file with an arbitrary header.
pub fn file(descr: &str, fortran_order: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", length.as_slice(), header.as_bytes(), data].concat()
}

fn number(descr: &str, value: f64) -> Vec<u8> {
    match descr {
        "<f4" => (value as f32).to_le_bytes().to_vec(),
        ">f4" => (value as f32).to_be_bytes().to_vec(),
        "<f8" => value.to_le_bytes().to_vec(),
        ">f8" => value.to_be_bytes().to_vec(),
        "|u1" => vec![value as u8],
        "|i1" => (value as i8).to_le_bytes().to_vec(),
        ">i2" => (value as i16).to_be_bytes().to_vec(),
        "<u2" => (value as u16).to_le_bytes().to_vec(),
        "<i4" => (value as i32).to_le_bytes().to_vec(),
        ">u4" => (value as u32).to_be_bytes().to_vec(),
        "<i8" => (value as i64).to_le_bytes().to_vec(),
        ">u8" => (value as u64).to_be_bytes().to_vec(),
        _ => panic!("the tests write no {descr}"),
    }
}

/// The shape and the float32 values of an array or a tensor, row by row.
#[derive(Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl Array {
    /// The rows of a matrix.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        let &[_, columns] = self.shape.as_slice() else { panic!("{:?} is no matrix", self.shape) };
        self.values.chunks_exact(columns)
    }
}

/// Reads a .npy file of float32.
#[track_caller]
pub fn read_npy(path: &Path) -> Array {
    let bytes = fs::read(path).expect("a file");
    let array = NpyFile::new(bytes.as_slice()).expect("an array");
    let shape = array.shape().iter().map(|size| *size as usize).collect();
    Array { shape, values: array.into_vec().expect("float32") }
}

/// Reads the tensors of a safetensors file by name; all must be float32.
#[track_caller]
pub fn read_safetensors(path: &Path) -> BTreeMap<String, Array> {
    let bytes = fs::read(path).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let tensor = |(name, tensor): (String, safetensors::tensor::TensorView<'_>)| {
        assert_eq!(tensor.dtype(), safetensors::Dtype::F32, "{name}");
        let (values, _) = tensor.data().as_chunks::<4>();
        let values = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
        (name, Array { shape: tensor.shape().to_vec(), values })
    };
    file.tensors().into_iter().map(tensor).collect()
}

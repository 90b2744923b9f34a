//! The training images of the MNIST database of handwritten digits: the original file, as bytes.
//!
//! They are a crate of their own because a package registry takes 10 MB at most. The other three files,
//! and the code that reads all four, are in `lsoftmax-data`.

/// `train-images-idx3-ubyte.gz`: 60,000 images of 28 x 28 pixels in the IDX format, gzipped.
///
/// ```
/// assert_eq!(lsoftmax_mnist::TRAIN_IMAGES[..2], [0x1f, 0x8b]); // gzip's magic number
/// ```
pub static TRAIN_IMAGES: &[u8] = include_bytes!("../data/mnist/train-images-idx3-ubyte.gz");

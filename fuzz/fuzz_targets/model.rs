//! The files of a model: its description and its weights.

#![no_main]

use std::sync::LazyLock;

use burn::tensor::Device;
use libfuzzer_sys::fuzz_target;
use lsoftmax_fuzz::{Directory, parts};
use lsoftmax_lab::model_file::TrainedModel;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    let [description, weights] = parts::<2>(bytes);
    DIRECTORY.write("model.json", description);
    DIRECTORY.write("model.safetensors", weights);
    if let Ok(model) = TrainedModel::read(DIRECTORY.path(), &Device::flex()) {
        assert!(model.model.is_finite());
    }
});

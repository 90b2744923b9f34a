//! Arguments that several commands have.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use lsoftmax_data::{DataDir, DataError};
use lsoftmax_lab::head::{HeadKind, HeadSettings, HeadSettingsError};
use serde::Serialize;

use crate::failure::Failure;
use crate::value_parsers::{device, head, number};

#[derive(Clone, Debug, Args)]
pub struct DataDirArgument {
    /// The directory of all data sets [default: $LSOFTMAX_DATA, else ~/.cache/lsoftmax]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl DataDirArgument {
    /// The directory given, or the default.
    pub fn find(self) -> Result<DataDir, DataError> {
        DataDir::find(self.data_dir)
    }
}

#[derive(Clone, Debug, Args)]
pub struct HeadArguments {
    /// The head
    #[arg(long, value_name = "NAME", default_value = "l-softmax", value_parser = head())]
    pub head: HeadKind,
    /// The margin m: any number from 1 (softmax) to 1000 for l-softmax and a-softmax [default: 4], from 0
    /// to 2 for cosface [default: 0.35], an angle in radians for arcface [default: 0.5]
    #[arg(long, value_name = "M", value_parser = number, allow_negative_numbers = true)]
    pub margin: Option<f64>,
    /// The scale s of cosface and arcface [default: 64] and of normsoftmax [default: 20]
    #[arg(long, value_name = "S", value_parser = number, allow_negative_numbers = true)]
    pub scale: Option<f64>,
}

impl HeadArguments {
    /// The head with its settings.
    pub fn settings(&self) -> Result<HeadSettings, Failure> {
        HeadSettings::new(self.head, self.margin, self.scale).map_err(bad_head)
    }
}

/// Names the argument that a head cannot have.
pub fn bad_head(error: HeadSettingsError) -> Failure {
    let argument = match error {
        HeadSettingsError::Scale(_) | HeadSettingsError::NoScale(_) => "--scale",
        _ => "--margin",
    };
    Failure::bad_input(format!("{argument}: {error}"))
}

#[derive(Clone, Debug, Args)]
pub struct RecordsArgument {
    /// The directory of records
    #[arg(long, value_name = "DIR", default_value = "records")]
    pub records: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct DeviceArgument {
    /// The device: cpu, or wgpu or cuda if the program was built with that feature
    #[arg(long, value_name = "NAME", default_value = "cpu", value_parser = device)]
    pub device: Device,
}

#[derive(Debug, Args)]
pub struct OutputArguments {
    /// Print the result as JSON, on one line
    #[arg(long)]
    json: bool,
}

impl OutputArguments {
    /// The result as JSON if asked for, else as `text` words it.
    pub fn render<T: Serialize + ?Sized>(
        &self,
        result: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<String, Failure> {
        if !self.json {
            return Ok(text(result));
        }
        serde_json::to_string(result).map_err(|error| {
            Failure::failed(format!("the result cannot be written as JSON ({error})"))
        })
    }
}

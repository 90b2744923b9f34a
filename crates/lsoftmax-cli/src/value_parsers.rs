//! From the text of an argument to a checked value.

use std::time::Duration;

use burn::tensor::Device;
#[cfg(feature = "cuda")]
use burn::tensor::DeviceIndex;
#[cfg(feature = "wgpu")]
use burn::tensor::DeviceKind;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lsoftmax::{LambdaSchedule, Margin, Precision};
use lsoftmax_data::{Set, Split};
use lsoftmax_lab::recipe::{Lambda, OnDivergence};

pub fn margin(text: &str) -> Result<Margin, String> {
    let m: f64 = text.trim().parse().map_err(|_| "must be a number from 1 to 1000")?;
    Margin::new(m).map_err(|error| error.to_string())
}

pub fn lambda(text: &str) -> Result<f64, String> {
    let lambda = text.trim().parse().map_err(|_| "must be a number of at least 0")?;
    LambdaSchedule::constant(lambda).map_err(|error| error.to_string())?;
    Ok(lambda)
}

/// λ of a training run: automatic, or constant.
pub fn lambda_of_run(text: &str) -> Result<Lambda, String> {
    match text.trim() {
        "auto" => Ok(Lambda::Auto),
        number => {
            let value = number.parse().map_err(|_| "must be auto or a number of at least 0")?;
            Lambda::constant(value).map_err(|error| error.to_string())
        }
    }
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = text.trim().parse().unwrap_or(f64::NAN);
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= DAY => Ok(duration),
        _ => Err("must be a number above 0 and at most 86400, a day".into()),
    }
}

pub fn precision() -> impl TypedValueParser<Value = Precision> {
    one_of([("f32", Precision::F32), ("bf16", Precision::Bf16)])
}

pub fn on_divergence() -> impl TypedValueParser<Value = OnDivergence> {
    one_of([("stop", OnDivergence::Stop), ("rollback", OnDivergence::Rollback)])
}

pub fn split() -> impl TypedValueParser<Value = Split> {
    one_of(Split::ALL.map(|split| (split.name(), split)))
}

pub fn set() -> impl TypedValueParser<Value = &'static Set> {
    one_of(Set::ALL.map(|set| (set.name, set)))
}

/// A device by its name. GPU backends come with cargo features of the same name.
pub fn device(name: &str) -> Result<Device, String> {
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(DeviceIndex::Default)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(DeviceKind::DefaultDevice)),
        _ if ["cuda", "wgpu"].contains(&name) => {
            Err(format!("this program was built without it; build it with `--features {name}`"))
        }
        _ => Err("choose cpu, wgpu or cuda".into()),
    }
}

/// One of a few names, each with the value that it stands for.
pub fn one_of<T, const N: usize>(
    choices: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices.each_ref().map(|(name, _)| *name)).map(move |text| {
        let choice = choices.iter().find(|(name, _)| *name == text);
        choice.expect("clap accepts no other name").1.clone()
    })
}

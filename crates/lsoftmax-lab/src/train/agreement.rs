//! That all ranks train the same: program, recipe, images, initial weights and kernels; and with different kernels the
//! same weights.

use std::path::PathBuf;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use lsoftmax_comm::Communicator;
use lsoftmax_data::DataSource;

use super::{Options, TrainError};
use crate::compute::Compute;
use crate::fine_tuning::InitialModel;
use crate::objective::BatchMetrics;
use crate::recipe::Recipe;
use crate::run::Environment;

/// What must be the same on all ranks, and whether its text is short enough for a sentence.
const FACTS: [(&str, bool); 5] = [
    ("version of the program", true),
    ("recipe", false),
    ("images", false),
    ("initial weights", false),
    (KERNELS, true),
];
const KERNELS: &str = "kernel path";

/// Compares this rank with the others.
///
/// # Errors
/// When a rank differs from rank 0.
pub(super) fn check(
    recipe: &Recipe,
    digest: &str,
    initial: Option<&InitialModel>,
    compute: &Compute,
    options: &Options,
) -> Result<(), TrainError> {
    if options.ranks.size() == 1 {
        return Ok(());
    }
    let Environment { version, commit, path, .. } = Environment::current(compute);
    // Images and weights may be in another place on every machine; their digests are compared.
    let place = DataSource::Folder(PathBuf::new());
    let recipe = Recipe { data: place, init: None, ..recipe.clone() };
    let mine = [
        format!("{version} ({commit})"),
        recipe.to_toml(),
        digest.to_owned(),
        initial.map(InitialModel::digest).unwrap_or_default(),
        format!("{path}, {}", compute.precision()),
    ];
    let all = options.ranks.gather(mine.join("\0").as_bytes());
    let all: Vec<String> =
        all.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect();
    for (rank, other) in all.iter().enumerate() {
        for ((what, short), (first, other)) in
            FACTS.iter().zip(all[0].split('\0').zip(other.split('\0')))
        {
            if first == other || *what == KERNELS && options.different_kernels {
                continue;
            }
            let detail = match short {
                true => format!(": {other}, not {first}"),
                false => String::new(),
            };
            let advice = match *what == KERNELS {
                true => {
                    "set LSOFTMAX_KERNEL to a path that all have, or allow it with --different-kernels"
                }
                false => "start all of them with the same program, arguments and data",
            };
            return Err(TrainError::Ranks(format!(
                "rank {rank} differs from rank 0 in its {what}{detail}; {advice}"
            )));
        }
    }
    Ok(())
}

/// Replaces the gradients of every rank by those of rank 0. The sums of the network's are the same anyway, but each
/// rank computes the head by itself, and on different kernels the models would drift apart.
pub(super) fn take_gradients_of_first<M: Module>(
    ranks: &dyn Communicator,
    model: &M,
    gradients: &mut GradientsParams,
) {
    struct OfFirst<'a>(&'a dyn Communicator, &'a mut GradientsParams);
    impl ModuleVisitor for OfFirst<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let Some(gradient) = self.1.remove::<D>(param.id) else { return };
            let (shape, device) = (gradient.dims(), gradient.device());
            let bytes = gradient.into_data().iter::<f32>().flat_map(f32::to_le_bytes).collect();
            let bytes = self.0.broadcast(bytes);
            let (numbers, _) = bytes.as_chunks();
            let numbers: Vec<f32> = numbers.iter().map(|one| f32::from_le_bytes(*one)).collect();
            self.1.register(
                param.id,
                Tensor::<D>::from_data(TensorData::new(numbers, shape), &device),
            );
        }
    }
    model.visit(&mut OfFirst(ranks, gradients));
}

/// The metrics of rank 0, on every rank.
pub(super) fn metrics_of_first(ranks: &dyn Communicator, mine: BatchMetrics) -> BatchMetrics {
    let BatchMetrics { loss, accuracy, margin_accuracy, angle, feature_norm } = mine;
    let numbers = [loss, accuracy, margin_accuracy, angle, feature_norm];
    let bytes = ranks.broadcast(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
    let number = |index: usize| f64::from_le_bytes(bytes.as_chunks().0[index]);
    BatchMetrics {
        loss: number(0),
        accuracy: number(1),
        margin_accuracy: number(2),
        angle: number(3),
        feature_norm: number(4),
    }
}

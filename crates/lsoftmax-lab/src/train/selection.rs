//! Which model a run keeps: the last or the best, plain or averaged; and when it ends early.

use burn::module::Module;
use burn::tensor::{Device, TensorData};
use serde::{Deserialize, Serialize};

use crate::evaluate::Evaluation;
use crate::model::Classifier;
use crate::model_file::{HeadOfFile, each_tensor, load, to_safetensors};
use crate::recipe::Keep;

/// The best evaluation on the held-out images so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Best {
    /// Its step.
    pub step: u64,
    /// Its result.
    pub evaluation: Evaluation,
    /// The number of evaluations since.
    pub waited: u64,
}

impl Best {
    /// The best evaluation after another one. It is better if its error is lower, or the same with a lower
    /// loss.
    pub fn next(best: Option<Self>, step: u64, evaluation: Evaluation) -> Self {
        let rank = |evaluation: &Evaluation| (evaluation.error, evaluation.loss);
        match best {
            Some(best) if rank(&evaluation) >= rank(&best.evaluation) => {
                Self { waited: best.waited + 1, ..best }
            }
            _ => Self { step, evaluation, waited: 0 },
        }
    }
}

/// The model that a run kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptModel {
    /// Whether it is the last or the best.
    pub model: Keep,
    /// The number of steps after which it was taken.
    pub step: u64,
    /// Whether its weights are the moving average of those of the steps.
    pub averaged: bool,
}

/// The exponential moving average of the weights and running statistics of a model.
#[derive(Clone, Debug)]
pub(super) struct MovingAverage {
    decay: f64,
    /// The tensors, in the order of [`each_tensor`].
    tensors: Vec<TensorData>,
}

impl MovingAverage {
    /// The average at the first step: the model.
    pub fn new(decay: f64, model: &Classifier) -> Self {
        Self { decay, tensors: tensors(model) }
    }

    /// Adds the model after `step` steps. In the first steps the decay is smaller, (1 + step) / (10 + step),
    /// so that the initial weights do not outweigh a short run.
    pub fn add(&mut self, model: &Classifier, step: u64) {
        let decay = self.decay.min((1.0 + step as f64) / (10.0 + step as f64));
        for (average, new) in self.tensors.iter_mut().zip(tensors(model)) {
            let next = average.iter::<f32>().zip(new.iter::<f32>()).map(|(average, new)| {
                let (average, new) = (f64::from(average), f64::from(new));
                (average + (1.0 - decay) * (new - average)) as f32
            });
            *average = TensorData::new(next.collect(), average.shape().clone());
        }
    }

    /// The averaged model, for inference.
    pub fn model(&self, like: &Classifier) -> Classifier {
        let mut model = like.valid();
        let device = model.device();
        let mut tensors = self.tensors.iter();
        let set = each_tensor(&mut model, &mut |_, mut slot| {
            let tensor = tensors.next().ok_or("the model has more tensors")?;
            slot.set(tensor.clone(), &device);
            Ok(())
        });
        set.expect("the average has the tensors of the model");
        model
    }

    /// The average as the contents of a safetensors file, for a checkpoint.
    pub fn to_bytes(&self, like: &Classifier) -> Vec<u8> {
        to_safetensors(&self.model(like))
    }

    /// The average from a checkpoint.
    pub fn from_bytes(decay: f64, bytes: &[u8], like: &Classifier) -> Result<Self, String> {
        Ok(Self::new(decay, &from_bytes(bytes, like)?))
    }
}

/// A model for inference from the contents of a safetensors file.
pub(super) fn from_bytes(bytes: &[u8], like: &Classifier) -> Result<Classifier, String> {
    let model = like.valid();
    let device: Device = model.device();
    Ok(load(model, bytes, HeadOfFile::Required, &device)?.0)
}

fn tensors(model: &Classifier) -> Vec<TensorData> {
    let mut tensors = Vec::new();
    let read = each_tensor(&mut model.clone(), &mut |_, slot| {
        tensors.push(slot.data());
        Ok(())
    });
    read.expect("reading a tensor does not fail");
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadSettings;
    use lsoftmax::{Execution, Margin};
    use lsoftmax_nn::{FeaturesConfig, NetworkConfig, StageConfig};

    fn evaluation(error: f64, loss: f64) -> Evaluation {
        Evaluation { images: 100, wrong: error as usize, error, loss, angle: 0.0 }
    }

    #[test]
    fn the_best_has_the_lowest_error_then_the_lowest_loss_and_is_the_first_of_equals() {
        let mut best = None;
        let found = [(5.0, 1.0), (5.0, 1.0), (6.0, 0.1), (5.0, 0.9), (4.0, 2.0), (4.0, 2.0)];
        let found = found.into_iter().zip(1..).map(|((error, loss), step)| {
            let next = Best::next(best, step, evaluation(error, loss));
            best = Some(next);
            (next.step, next.waited)
        });
        assert_eq!(found.collect::<Vec<_>>(), [(1, 0), (1, 1), (1, 2), (4, 0), (5, 0), (5, 1)]);
    }

    fn model(weight: f32) -> Classifier {
        let network = NetworkConfig {
            input: [1, 4, 4],
            stages: vec![StageConfig::new(2, 1)],
            features: FeaturesConfig::new(2),
        };
        let device = Device::flex().autodiff();
        let head = HeadSettings::l_softmax(Margin::new(2).expect("a margin"));
        let mut model =
            Classifier::new(&network, 3, head, Execution::default(), &device).expect("a network");
        let set = each_tensor(&mut model, &mut |_, mut slot| {
            let shape = slot.shape();
            let values = vec![weight; shape.iter().product()];
            slot.set(TensorData::new(values, shape), &device);
            Ok(())
        });
        set.expect("setting does not fail");
        model
    }

    /// Against the definition, written out: weights, statistics and head alike.
    #[test]
    fn an_average_decays_as_its_definition_says_and_survives_its_bytes() {
        let mut average = MovingAverage::new(0.4, &model(8.0));
        average.add(&model(4.0), 1);
        average.add(&model(1.0), 9);
        // The decays are 2/11 and, since 10/19 is more, 0.4.
        let first = 4.0 + (2.0 / 11.0) * (8.0 - 4.0);
        let expected = 1.0 + 0.4 * (first - 1.0);
        let read = MovingAverage::from_bytes(0.4, &average.to_bytes(&model(0.0)), &model(0.0));
        let read = read.expect("it was just written");
        for tensor in tensors(&read.model(&model(0.0))) {
            assert!(tensor.iter::<f32>().all(|value| (f64::from(value) - expected).abs() < 1e-6));
        }
        assert_eq!(tensors(&average.model(&model(0.0))), tensors(&read.model(&model(0.0))));
    }
}

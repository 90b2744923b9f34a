//! Sampled classes: a step with very many classes that computes only a part of them.

use burn::module::Param;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::fused::label_indices;
use crate::weight_copy::WeightCopy;
use crate::{AngularMargin, HeadError, MarginHead};

/// The share of the classes that a step uses besides those of its own samples; above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SampleRate(f64);

/// A number that cannot be a share of the classes.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the share of the classes must be above 0 and at most 1, but is {0}")]
pub struct SampleRateError(f64);

impl SampleRate {
    /// All classes.
    pub const ALL: Self = Self(1.0);

    /// A share of the classes.
    ///
    /// # Errors
    /// When it is not above 0 and at most 1.
    pub fn new(rate: f64) -> Result<Self, SampleRateError> {
        if rate > 0.0 && rate <= 1.0 { Ok(Self(rate)) } else { Err(SampleRateError(rate)) }
    }

    /// The share.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Draws the classes of a step: those of its labels, and of the others this share (rounded, at least
    /// one), each subset with the same probability. In increasing order.
    ///
    /// The same arguments give the same classes, on every machine and in every future version.
    pub(crate) fn draw(self, labels: &[u32], classes: u32, seed: u64, step: u64) -> Vec<u32> {
        let mut chosen = labels.to_vec();
        chosen.sort_unstable();
        chosen.dedup();
        let others = classes as usize - chosen.len();
        let count = ((self.0 * others as f64).round() as usize).clamp(others.min(1), others);
        // Every other class has a random key; those with the smallest keys are chosen.
        let stream = mix(mix(seed).wrapping_add(step));
        let is_own = |class: &u32| chosen.binary_search(class).is_ok();
        let mut keys: Vec<(u64, u32)> = (0..classes)
            .filter(|class| !is_own(class))
            .map(|class| (mix(stream.wrapping_add(class.into())), class))
            .collect();
        if count < keys.len() {
            keys.select_nth_unstable(count);
        }
        chosen.extend(keys[..count].iter().map(|(_, class)| class));
        chosen.sort_unstable();
        chosen
    }
}

impl Default for SampleRate {
    fn default() -> Self {
        Self::ALL
    }
}

impl TryFrom<f64> for SampleRate {
    type Error = SampleRateError;

    fn try_from(rate: f64) -> Result<Self, SampleRateError> {
        Self::new(rate)
    }
}

impl From<SampleRate> for f64 {
    fn from(rate: SampleRate) -> Self {
        rate.0
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014), which is one to one.
pub(crate) fn mix(word: u64) -> u64 {
    let mut word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The classes of one step of a head with a [`SampleRate`]: see [`MarginHead::sampled`].
#[derive(Clone, Debug)]
pub struct SampledHead<M: AngularMargin> {
    /// A head with the sampled classes alone. Its weights are a parameter of their own.
    pub head: MarginHead<M>,
    /// The sampled classes, in increasing order: which row of the whole head each of its rows is.
    pub classes: Tensor<1, Int>,
    /// The labels as classes of `head`.
    pub labels: Tensor<1, Int>,
}

impl<M: AngularMargin> MarginHead<M> {
    /// The part of this head that one step uses, as in [Partial FC](https://arxiv.org/abs/2203.15565) (An
    /// et al., CVPR 2022): the classes of the labels, and a random share of the others, which depends on
    /// `seed` and `step` alone. With a rate of 1 these are all classes.
    ///
    /// Loss and gradients are those of a head that has no other classes, and so are its accuracies.
    /// [`RowSgd`](crate::RowSgd) applies the gradient of the sampled weights.
    ///
    /// ```
    /// use burn::tensor::{Device, Distribution, Tensor};
    /// use lsoftmax::{ArcFaceConfig, RowSgd};
    ///
    /// let device = Device::flex().autodiff();
    /// let mut head = ArcFaceConfig::new(16, 1000).with_sample_rate(0.1).init(&device);
    /// let mut optimiser = RowSgd::new(0.9, 5e-4);
    /// let features = Tensor::random([2, 16], Distribution::Normal(0.0, 1.0), &device);
    /// let labels = Tensor::from_ints([3, 777], &device);
    ///
    /// let step = 0;
    /// let part = head.sampled(labels, 2016, step)?;
    /// assert_eq!(part.head.weight.dims(), [2 + 100, 16]);
    /// let out = part.head.forward(features, part.labels, 0.0)?;
    /// let gradient = part.head.weight.grad(&out.loss.backward()).expect("it is tracked");
    /// head.weight = optimiser.step(0.1, head.weight, part.classes, gradient);
    /// # Ok::<(), lsoftmax::HeadError>(())
    /// ```
    ///
    /// # Errors
    /// When a label is out of range.
    pub fn sampled(
        &self,
        labels: Tensor<1, Int>,
        seed: u64,
        step: u64,
    ) -> Result<SampledHead<M>, HeadError> {
        let [classes, _] = self.weight.dims();
        let device = labels.device();
        let named = label_indices(labels, classes)?;
        let drawn = self.sample_rate.draw(&named, classes as u32, seed, step);
        let position = |label: &u32| {
            drawn.binary_search(label).expect("the classes of the labels are drawn") as i64
        };
        let tensor = |numbers: Vec<i64>| {
            let count = numbers.len();
            Tensor::<1, Int>::from_data(TensorData::new(numbers, [count]), &device)
        };
        let labels = tensor(named.iter().map(position).collect());
        let rows = tensor(drawn.iter().map(|class| (*class).into()).collect());
        let head = Self {
            weight: selected(&self.weight, rows.clone()),
            bias: self.bias.as_ref().map(|bias| selected(bias, rows.clone())),
            weight_copy: WeightCopy::default(),
            ..self.clone()
        };
        Ok(SampledHead { head, classes: rows, labels })
    }
}

/// Rows of a parameter as a parameter of its own.
fn selected<const D: usize>(param: &Param<Tensor<D>>, rows: Tensor<1, Int>) -> Param<Tensor<D>> {
    let value = param.val();
    let is_autodiff = value.device().is_autodiff();
    let selected = value.inner().select(0, rows.inner());
    Param::from_tensor(if is_autodiff { Tensor::from_inner(selected) } else { selected })
}

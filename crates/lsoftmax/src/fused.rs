//! The loss as one operation on Burn's CPU backend, with its own backward pass.
//!
//! The values are computed by `lsoftmax-kernels` outside of any graph; [`HeadOps`] then hands them
//! to autodiff together with what its backward pass needs.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{DType, Int, Tensor};
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients as GradientStore;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use lsoftmax_kernels::head::{self, Forward, Geometry, Problem, ShapeError, Wanted};
use lsoftmax_kernels::{Buffer, Engine, Precision};

use crate::cpu::{FlexTensor, contiguous, inner, slice, tensor};
use crate::error::first_not_finite;
use crate::head::Inputs;
use crate::label::LabelTerm;
use crate::report::{Report, Seen};
use crate::{HeadError, Margin};

/// A forward pass: inputs (shared, not copied), results, and what backward needs.
#[derive(Debug)]
pub(crate) struct Pass {
    features: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    labels: Vec<u32>,
    classes: usize,
    forward: Forward,
    terms: Vec<LabelTerm>,
    /// The log-sum-exp over all classes, the label's logit with its margin.
    lse: Vec<f64>,
    losses: Buffer,
}

/// The head's operation, for the backends that have it.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait HeadOps: Backend {
    /// The losses of `pass`, as a function of the two tensors.
    fn head_losses(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        pass: Arc<Pass>,
    ) -> FloatTensor<Self>;

    /// The losses of `pass`, as a function of the three tensors.
    fn head_losses_with_bias(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        pass: Arc<Pass>,
    ) -> FloatTensor<Self>;
}

/// Whether [`losses`] can take these tensors: f32 on the CPU backend.
pub(crate) fn serves(inputs: &Inputs) -> bool {
    fn flex<const D: usize>(tensor: &Tensor<D>) -> bool {
        tensor.dtype() == DType::F32 && on_cpu(tensor)
    }
    flex(&inputs.features) && flex(&inputs.weight) && inputs.bias.as_ref().is_none_or(flex)
}

/// Whether a tensor is of the CPU backend, where reading it back waits for nothing.
pub(crate) fn on_cpu<const D: usize>(tensor: &Tensor<D>) -> bool {
    inner(tensor.clone()).is_some()
}

/// The loss of every sample.
pub(crate) fn losses(
    inputs: Inputs,
    margin: Margin,
    lambda: f64,
    precision: Precision,
) -> Result<(Tensor<1>, Arc<Pass>), HeadError> {
    let Inputs { features, weight, bias, labels } = inputs;
    let tracked = features.device().is_autodiff() || weight.device().is_autodiff();
    let [classes, _] = weight.dims();
    let pass = Arc::new(Pass::new(
        served(features.clone()),
        served(weight.clone()),
        bias.clone().map(served),
        checked_labels(labels, classes)?,
        Settings { margin, lambda, engine: Engine::new(precision)?, tracked },
    )?);
    let (x, w, kept) = (features.into_dispatch(), weight.into_dispatch(), pass.clone());
    let losses = match bias {
        None => Dispatch::head_losses(x, w, kept),
        Some(bias) => Dispatch::head_losses_with_bias(x, w, bias.into_dispatch(), kept),
    };
    Ok((Tensor::from_dispatch(losses), pass))
}

fn served<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    contiguous(tensor).expect("`serves` has been asked")
}

/// The labels, if each names a class.
pub(crate) fn checked_labels(
    labels: Tensor<1, Int>,
    classes: usize,
) -> Result<Vec<u32>, ShapeError> {
    let labels = labels.into_data();
    let checked = |(sample, label): (usize, i64)| match u32::try_from(label) {
        Ok(y) if (y as usize) < classes => Ok(y),
        _ => Err(ShapeError::Label { sample, label, classes }),
    };
    labels.iter::<i64>().enumerate().map(checked).collect()
}

struct Settings {
    margin: Margin,
    lambda: f64,
    engine: Engine,
    tracked: bool,
}

impl Pass {
    fn new(
        features: FlexTensor,
        weight: FlexTensor,
        bias: Option<FlexTensor>,
        labels: Vec<u32>,
        settings: Settings,
    ) -> Result<Self, HeadError> {
        let Settings { margin, lambda, engine, tracked } = settings;
        let classes = weight.layout().shape()[0];
        let depth = weight.layout().shape()[1];
        let bias_slice = bias.as_ref().map(slice);
        let problem =
            Problem::new(slice(&features), slice(&weight), bias_slice, &labels, depth, classes)?;
        let forward = head::forward(engine, &problem, tracked);

        let samples = labels.len();
        let (mut terms, mut lse) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
        let mut losses = Buffer::new(samples);
        for ((sample, label), out) in forward.samples.iter().zip(&labels).zip(&mut *losses) {
            let term = LabelTerm::new(margin, lambda, &sample.geometry);
            let logit = if margin.is_one() {
                f64::from(sample.plain)
            } else {
                term.logit + bias_slice.map_or(0.0, |bias| f64::from(bias[*label as usize]))
            };
            // ln(e^logit + e^others) and that minus the logit, without overflow. The first is not
            // the second plus the logit: beside a huge logit the sum would be lost to rounding.
            let gap = sample.others_lse - logit;
            let tail = (-gap.abs()).exp().ln_1p();
            terms.push(term);
            lse.push(sample.others_lse.max(logit) + tail);
            *out = (gap.max(0.0) + tail) as f32;
        }
        let pass = Self { features, weight, bias, labels, classes, forward, terms, lse, losses };
        pass.check()?;
        Ok(pass)
    }

    /// Names the first number that is not finite. Searches only when there is one.
    fn check(&self) -> Result<(), HeadError> {
        let (low, high) = self.forward.weight_norms;
        let bad = self.losses.iter().position(|loss| !loss.is_finite());
        let finite = |sample: &head::Sample| sample.geometry.feature_norm.is_finite();
        let features = self.forward.samples.iter().all(finite);
        let weights = low.is_finite() && high.is_finite();
        // A bias of −∞ shows nowhere else: its class only becomes impossible.
        let bias = self.bias.iter().flat_map(slice).all(|bias| bias.is_finite());
        if bad.is_none() && features && weights && bias {
            return Ok(());
        }
        let depth = slice(&self.features).len() / self.labels.len();
        let wide = |tensor: &FlexTensor| -> Vec<f64> {
            slice(tensor).iter().copied().map(f64::from).collect()
        };
        if let Some((sample, index, value)) = first_not_finite(&wide(&self.features), depth) {
            return Err(HeadError::Feature { sample, index, value });
        }
        if let Some((class, index, value)) = first_not_finite(&wide(&self.weight), depth) {
            return Err(HeadError::Weight { class, index, value });
        }
        let bias = self.bias.as_ref().map(wide).unwrap_or_default();
        if let Some((class, _, value)) = first_not_finite(&bias, 1) {
            return Err(HeadError::Bias { class, value });
        }
        let Some(sample) = bad else { return Ok(()) };
        let Geometry { feature_norm, weight_norm, .. } = self.forward.samples[sample].geometry;
        let value = self.losses[sample].into();
        Err(HeadError::Loss { sample, value, feature_norm, weight_norm })
    }

    pub fn report(&self, margin: Margin, lambda: f64) -> Report {
        let bias = self.bias.as_ref().map(slice);
        let seen = self.forward.samples.iter().enumerate().map(|(i, sample)| Seen {
            geometry: sample.geometry,
            plain: sample.plain.into(),
            others_max: sample.others_max.into(),
            correct: sample.correct,
            loss: self.losses[i].into(),
            bias: bias.map_or(0.0, |bias| bias[self.labels[i] as usize].into()),
        });
        let (low, high) = self.forward.weight_norms;
        Report::new(margin, lambda, seen, (low.into(), high.into()))
    }

    fn backward(&self, upstream: &[f32], wanted: Wanted) -> head::Gradients {
        let depth = slice(&self.features).len() / self.labels.len();
        let problem = Problem::new(
            slice(&self.features),
            slice(&self.weight),
            self.bias.as_ref().map(slice),
            &self.labels,
            depth,
            self.classes,
        )
        .expect("the forward pass has checked the problem");
        let labels: Vec<_> = (0..self.labels.len())
            .map(|i| {
                // p_y − 1, as minus the others' share: exact where p_y is nearly 1.
                let others = (self.forward.samples[i].others_lse - self.lse[i]).exp();
                self.terms[i].gradient(-f64::from(upstream[i]) * others)
            })
            .collect();
        head::backward(&problem, &self.forward, upstream, &self.lse, &labels, wanted)
    }
}

impl Pass {
    fn losses(&self) -> FlexTensor {
        tensor(self.losses.clone(), [self.losses.len()])
    }
}

impl HeadOps for Flex {
    fn head_losses(_: FlexTensor, _: FlexTensor, pass: Arc<Pass>) -> FlexTensor {
        pass.losses()
    }

    fn head_losses_with_bias(
        _: FlexTensor,
        _: FlexTensor,
        _: FlexTensor,
        pass: Arc<Pass>,
    ) -> FlexTensor {
        pass.losses()
    }
}

impl<C: CheckpointStrategy> HeadOps for Autodiff<Flex, C> {
    fn head_losses(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        pass: Arc<Pass>,
    ) -> FloatTensor<Self> {
        track::<C, 2>([features.node(), weight.node()], pass)
    }

    fn head_losses_with_bias(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        pass: Arc<Pass>,
    ) -> FloatTensor<Self> {
        track::<C, 3>([features.node(), weight.node(), bias.node()], pass)
    }
}

/// Enters the losses into the graph: features, weight and, with three parents, bias.
fn track<C: CheckpointStrategy, const N: usize>(
    parents: [NodeGuard; N],
    pass: Arc<Pass>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let losses = pass.losses();
    match HeadBackward.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(pass, losses),
        OpsKind::UnTracked(prep) => prep.finish(losses),
    }
}

#[derive(Debug)]
struct HeadBackward;

impl<const N: usize> Backward<Flex, N> for HeadBackward {
    type State = Arc<Pass>;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let upstream = grads.consume::<Flex>(&ops.node);
        let upstream = if upstream.is_contiguous() { upstream } else { upstream.to_contiguous() };
        let parents: Vec<_> = ops.parents.into_iter().collect();
        let wanted = |parent: usize| parents.get(parent).is_some_and(Option::is_some);
        let wanted = Wanted { features: wanted(0), weights: wanted(1), bias: wanted(2) };

        let pass = ops.state;
        let found = pass.backward(slice(&upstream), wanted);
        let shape = |tensor: &FlexTensor| tensor.layout().shape().clone();
        let shapes =
            [Some(shape(&pass.features)), Some(shape(&pass.weight)), pass.bias.as_ref().map(shape)];
        let gradients = [found.features, found.weights, found.bias];
        for ((parent, gradient), shape) in parents.into_iter().zip(gradients).zip(shapes) {
            if let (Some(node), Some(shape)) = (parent, shape) {
                grads.register::<Flex>(node.id, tensor(gradient, shape));
            }
        }
    }
}

//! The loss as one operation on Burn's CPU backend, with its own backward pass.
//!
//! The values are computed by `lsoftmax-kernels` outside of any graph; [`HeadOps`] then passes them to
//! autodiff together with the state that the backward pass needs.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{DType, Int, Tensor};
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients as GradientStore;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use lsoftmax_flex::{FlexTensor, as_slice, contiguous, from_buffer, is_flex};
use lsoftmax_kernels::Engine;
use lsoftmax_kernels::head::{self, HeadForward, HeadProblem, ShapeError, WantedGradients};

use crate::batch_loss::BatchLoss;
use crate::error::first_not_finite;
use crate::head::HeadTensors;
use crate::{AngularMargin, HeadError, Normalisation, Report};

/// A forward pass: inputs (shared, not copied), results, and the state for the backward pass.
#[derive(Debug)]
pub(crate) struct HeadPass {
    inputs: FlexInputs,
    forward: HeadForward,
    loss: BatchLoss,
}

/// The inputs of a forward pass, contiguous.
#[derive(Debug)]
pub(crate) struct FlexInputs {
    pub features: FlexTensor,
    pub weight: FlexTensor,
    pub bias: Option<FlexTensor>,
    /// The class of each sample, or [`head::ELSEWHERE`] in a shard of a head.
    pub labels: Vec<u32>,
    pub normalisation: Normalisation,
}

impl FlexInputs {
    fn new(tensors: &HeadTensors) -> Result<Self, ShapeError> {
        fn supported<const D: usize>(tensor: &Tensor<D>) -> FlexTensor {
            contiguous(tensor.clone()).expect("`is_supported` has been checked")
        }
        Ok(Self {
            features: supported(&tensors.features),
            weight: supported(&tensors.weight),
            bias: tensors.bias.as_ref().map(supported),
            labels: label_indices(tensors.labels.clone(), tensors.weight.dims()[0])?,
            normalisation: tensors.normalisation,
        })
    }

    /// The inputs as the kernels take them.
    pub fn problem(&self) -> Result<HeadProblem<'_>, ShapeError> {
        let shape = self.weight.layout().shape();
        let (features, weight) = (as_slice(&self.features), as_slice(&self.weight));
        let problem =
            HeadProblem::of_shard(features, weight, self.bias(), &self.labels, shape[1], shape[0])?;
        Ok(match self.normalisation.normalises_weights() {
            true => problem.with_normalised_weights(),
            false => problem,
        })
    }

    fn bias(&self) -> Option<&[f32]> {
        self.bias.as_ref().map(as_slice)
    }

    /// The bias of a sample's label.
    pub fn label_bias(&self, sample: usize) -> f64 {
        self.bias().map_or(0.0, |bias| bias[self.labels[sample] as usize].into())
    }
}

/// The head's operation, for the backends that support it.
#[backend_extension(Flex, Autodiff)]
pub(crate) trait HeadOps: Backend {
    /// The losses of `pass`, as a function of the two tensors.
    fn head_losses(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        pass: Arc<HeadPass>,
    ) -> FloatTensor<Self>;

    /// The losses of `pass`, as a function of the three tensors.
    fn head_losses_with_bias(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        pass: Arc<HeadPass>,
    ) -> FloatTensor<Self>;
}

/// Whether [`losses`] supports these tensors: f32 on the CPU backend.
pub(crate) fn is_supported(tensors: &HeadTensors) -> bool {
    fn supported<const D: usize>(tensor: &Tensor<D>) -> bool {
        tensor.dtype() == DType::F32 && is_flex(tensor)
    }
    let HeadTensors { features, weight, bias, .. } = tensors;
    supported(features) && supported(weight) && bias.as_ref().is_none_or(supported)
}

/// The loss of every sample.
pub(crate) fn losses(
    tensors: HeadTensors,
    margin: &impl AngularMargin,
    lambda: f64,
    engine: Engine,
) -> Result<(Tensor<1>, Arc<HeadPass>), HeadError> {
    let tracked = tensors.features.device().is_autodiff() || tensors.weight.device().is_autodiff();
    let inputs = FlexInputs::new(&tensors)?;
    let kept = tensors.weight_copy.of(&inputs.weight);
    let problem = inputs.problem()?;
    let problem = match &kept {
        Some(copy) => problem.with_bf16_weights(copy),
        None => problem,
    };
    let forward = head::forward(engine, &problem, tracked);
    if let (None, Some(made)) = (&kept, &forward.bf16_weights) {
        tensors.weight_copy.keep(&inputs.weight, made);
    }
    let pass = Arc::new(HeadPass::new(inputs, forward, margin, lambda)?);
    let HeadTensors { features, weight, bias, .. } = tensors;
    let (x, w, shared) = (features.into_dispatch(), weight.into_dispatch(), pass.clone());
    let losses = match bias {
        None => Dispatch::head_losses(x, w, shared),
        Some(bias) => Dispatch::head_losses_with_bias(x, w, bias.into_dispatch(), shared),
    };
    Ok((Tensor::from_dispatch(losses), pass))
}

/// The values of a tensor in f64.
pub(crate) fn wide(tensor: &FlexTensor) -> Vec<f64> {
    as_slice(tensor).iter().copied().map(f64::from).collect()
}

/// The labels, if all are in range.
pub(crate) fn label_indices(
    labels: Tensor<1, Int>,
    classes: usize,
) -> Result<Vec<u32>, ShapeError> {
    let labels = labels.into_data();
    let index = |(sample, label): (usize, i64)| match u32::try_from(label) {
        Ok(y) if (y as usize) < classes => Ok(y),
        _ => Err(ShapeError::Label { sample, label, classes }),
    };
    labels.iter::<i64>().enumerate().map(index).collect()
}

impl HeadPass {
    fn new(
        inputs: FlexInputs,
        forward: HeadForward,
        margin: &impl AngularMargin,
        lambda: f64,
    ) -> Result<Self, HeadError> {
        let (samples, normalisation) = (&forward.samples, inputs.normalisation);
        let biases = (0..samples.len()).map(|sample| inputs.label_bias(sample)).collect();
        let loss = BatchLoss::new(samples, biases, normalisation, margin, lambda);
        let pass = Self { inputs, forward, loss };
        pass.check()?;
        Ok(pass)
    }

    /// Returns an error for the first number that is not finite. Searches only if there is one.
    fn check(&self) -> Result<(), HeadError> {
        let FlexInputs { features, weight, bias, labels, .. } = &self.inputs;
        let (low, high) = self.forward.weight_norms;
        let bad = self.loss.not_finite(&self.forward.samples);
        let finite = |sample: &head::HeadSample| sample.geometry.feature_norm.is_finite();
        let finite_features = self.forward.samples.iter().all(finite);
        let finite_weights = low.is_finite() && high.is_finite();
        // A bias of −∞ has no other visible effect: its class just gets probability 0.
        let finite_bias = bias.iter().flat_map(as_slice).all(|bias| bias.is_finite());
        if bad.is_none() && finite_features && finite_weights && finite_bias {
            return Ok(());
        }
        let depth = as_slice(features).len() / labels.len();
        if let Some((sample, index, value)) = first_not_finite(&wide(features), depth) {
            return Err(HeadError::Feature { sample, index, value });
        }
        if let Some((class, index, value)) = first_not_finite(&wide(weight), depth) {
            return Err(HeadError::Weight { class, index, value });
        }
        let bias = bias.as_ref().map(wide).unwrap_or_default();
        if let Some((class, _, value)) = first_not_finite(&bias, 1) {
            return Err(HeadError::Bias { class, value });
        }
        bad.map_or(Ok(()), Err)
    }

    pub fn report<M: AngularMargin>(&self, margin: M, lambda: f64) -> Report<M> {
        self.loss.report(&self.forward.samples, margin, lambda, self.forward.weight_norms)
    }

    fn backward(&self, upstream: &[f32], wanted: WantedGradients) -> head::HeadGradients {
        let problem = self.inputs.problem().expect("the forward pass has checked the problem");
        let labels = self.loss.label_gradients(&self.forward.samples, upstream);
        head::backward(&problem, &self.forward, upstream, &self.loss.lse, &labels, wanted)
    }

    fn losses(&self) -> FlexTensor {
        from_buffer(self.loss.losses.clone(), [self.loss.losses.len()])
    }
}

impl HeadOps for Flex {
    fn head_losses(_: FlexTensor, _: FlexTensor, pass: Arc<HeadPass>) -> FlexTensor {
        pass.losses()
    }

    fn head_losses_with_bias(
        _: FlexTensor,
        _: FlexTensor,
        _: FlexTensor,
        pass: Arc<HeadPass>,
    ) -> FlexTensor {
        pass.losses()
    }
}

impl<C: CheckpointStrategy> HeadOps for Autodiff<Flex, C> {
    fn head_losses(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        pass: Arc<HeadPass>,
    ) -> FloatTensor<Self> {
        track::<C, 2>([features.node(), weight.node()], pass)
    }

    fn head_losses_with_bias(
        features: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        pass: Arc<HeadPass>,
    ) -> FloatTensor<Self> {
        track::<C, 3>([features.node(), weight.node(), bias.node()], pass)
    }
}

/// Registers the losses in the graph, with features, weight and optionally bias as parents.
fn track<C: CheckpointStrategy, const N: usize>(
    parents: [NodeGuard; N],
    pass: Arc<HeadPass>,
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
    type State = Arc<HeadPass>;

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
        let wanted = WantedGradients { features: wanted(0), weights: wanted(1), bias: wanted(2) };

        let pass = ops.state;
        let found = pass.backward(as_slice(&upstream), wanted);
        let FlexInputs { features, weight, bias, .. } = &pass.inputs;
        let shape = |tensor: &FlexTensor| tensor.layout().shape().clone();
        let shapes = [Some(shape(features)), Some(shape(weight)), bias.as_ref().map(shape)];
        let gradients = [found.features, found.weights, found.bias];
        for ((parent, gradient), shape) in parents.into_iter().zip(gradients).zip(shapes) {
            if let (Some(node), Some(shape)) = (parent, shape) {
                grads.register::<Flex>(node.id, from_buffer(gradient, shape));
            }
        }
    }
}

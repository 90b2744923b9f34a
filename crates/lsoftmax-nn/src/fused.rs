//! The units on Burn's CPU backend, computed by `lsoftmax-kernels`.
//!
//! The kernels compute a run of units in one go, outside of any graph. In the graph the images and
//! every unit are nodes of their own, since a node's parents are an array and networks differ in
//! length: all nodes but the last stand for values that only the kernels see, and hold one number.
//! The last node's backward pass computes all gradients; the nodes before it hand theirs out as
//! autodiff comes by.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::{Autodiff, BackendTensor, DispatchTensor, DispatchTensorKind, Flex};
use burn::backend::{TensorMetadata, tensor::FloatTensor};
use burn::module::{Param, RunningState};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn_autodiff::grads::Gradients as GradientStore;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use lsoftmax::cpu::{FlexTensor, contiguous, slice, tensor};
use lsoftmax_kernels::conv::{
    Forward, Moments, Parameters, Stack, UnitGradients, backward, forward, infer,
};
use lsoftmax_kernels::{Buffer, Engine};

use crate::{ConvUnit, NetworkError};

type Tracked = FloatTensor<Autodiff<Flex>>;

/// The units' output, if the kernels can compute it: f32 on the CPU, in training as a whole or in
/// inference.
pub(crate) fn run(
    units: &[ConvUnit],
    images: &Tensor<4>,
) -> Result<Option<Tensor<4>>, NetworkError> {
    let Some(inputs) = Inputs::new(units, images) else { return Ok(None) };
    let [count, channels, height, width] = images.dims();
    if count == 0 {
        return Ok(None);
    }
    let stack = Stack::new([channels, height, width], units.iter().map(ConvUnit::unit).collect())?;
    let engine = Engine::new(units[0].precision)?;
    let [filters, height, width] = stack.output();
    let shape = [count, filters, height, width];

    if !images.device().is_autodiff() {
        let moments = running_moments(units);
        let output = infer(engine, &stack, slice(&inputs.images), &inputs.parameters(), &moments)?;
        return Ok(Some(from_flex(tensor(output, shape))));
    }
    if !units.iter().all(|unit| unit.gamma.is_none() || unit.trains_on(images)) {
        return Ok(None);
    }
    let Some(nodes) = Nodes::new(units, images) else { return Ok(None) };
    let pass = forward(engine, &stack, slice(&inputs.images), &inputs.parameters())?;
    for (index, (unit, moments)) in units.iter().zip(&pass.moments).enumerate() {
        if unit.gamma.is_some() {
            let [_, height, width] = stack.convolved(index);
            let values = |numbers: &[f32]| Tensor::<1>::from_floats(numbers, &images.device());
            let (mean, variance) = (values(&moments.mean), values(&moments.variance));
            unit.update_running(mean, variance, count * height * width);
        }
    }
    Ok(Some(nodes.track(stack, inputs, pass, shape)))
}

/// The tensors that units are computed from, shared, not copied.
#[derive(Debug)]
struct Inputs {
    images: FlexTensor,
    units: Vec<UnitInputs>,
}

#[derive(Debug)]
struct UnitInputs {
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    gamma: Option<FlexTensor>,
    beta: Option<FlexTensor>,
    slope: Option<FlexTensor>,
}

impl Inputs {
    fn new(units: &[ConvUnit], images: &Tensor<4>) -> Option<Self> {
        // A parameter that is not there is fine; one that is elsewhere is not.
        let vector = |parameter: &Option<Param<Tensor<1>>>| match parameter {
            Some(parameter) => contiguous(parameter.val()).map(Some),
            None => Some(None),
        };
        let units = units.iter().map(|unit| {
            Some(UnitInputs {
                weight: contiguous(unit.weight.val())?,
                bias: vector(&unit.bias)?,
                gamma: vector(&unit.gamma)?,
                beta: vector(&unit.beta)?,
                slope: vector(&unit.slope)?,
            })
        });
        Some(Self { images: contiguous(images.clone())?, units: units.collect::<Option<_>>()? })
    }

    fn parameters(&self) -> Vec<Parameters<'_>> {
        fn vector(tensor: &Option<FlexTensor>) -> &[f32] {
            tensor.as_ref().map_or(&[], slice)
        }
        self.units
            .iter()
            .map(|unit| Parameters {
                weight: slice(&unit.weight),
                bias: vector(&unit.bias),
                gamma: vector(&unit.gamma),
                beta: vector(&unit.beta),
                slope: vector(&unit.slope),
            })
            .collect()
    }
}

/// The running statistics of units.
fn running_moments(units: &[ConvUnit]) -> Vec<Moments> {
    let values = |running: &Option<RunningState<Tensor<1>>>| {
        let values = running.as_ref().and_then(|running| contiguous(running.value()));
        values.map_or(Vec::new(), |values| slice(&values).to_vec())
    };
    let moments = |unit: &ConvUnit| Moments {
        mean: values(&unit.running_mean),
        variance: values(&unit.running_var),
    };
    units.iter().map(moments).collect()
}

fn from_flex(tensor: FlexTensor) -> Tensor<4> {
    let kind = DispatchTensorKind::Flex(BackendTensor::Float(tensor));
    Tensor::from_dispatch(DispatchTensor { kind, autodiff: Default::default() })
}

/// What the graph knows of the units' inputs.
struct Nodes {
    images: NodeGuard,
    /// In the order of [`parameter_gradients`].
    units: Vec<Vec<NodeGuard>>,
    context: burn::backend::DispatchAutodiffContext,
}

fn tracked<const D: usize>(tensor: Tensor<D>) -> Option<Tracked> {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Autodiff(kind) => match *kind {
            DispatchTensorKind::Flex(BackendTensor::Autodiff(tensor)) => Some(tensor),
            _ => None,
        },
        _ => None,
    }
}

impl Nodes {
    /// None when a tensor is not one of autodiff's.
    fn new(units: &[ConvUnit], images: &Tensor<4>) -> Option<Self> {
        let units = units.iter().map(|unit| {
            let vectors = [&unit.bias, &unit.gamma, &unit.beta, &unit.slope];
            let vectors = vectors.into_iter().flatten().map(|vector| tracked(vector.val()));
            let tensors = std::iter::once(tracked(unit.weight.val())).chain(vectors);
            tensors.map(|tensor| Some(tensor?.node())).collect::<Option<Vec<_>>>()
        });
        let units = units.collect::<Option<_>>()?;
        let context = images.clone().into_dispatch().autodiff;
        Some(Self { images: tracked(images.clone())?.node(), units, context })
    }

    /// Enters images and units into the graph.
    fn track(
        self,
        stack: Stack,
        inputs: Inputs,
        mut forward: Forward,
        shape: [usize; 4],
    ) -> Tensor<4> {
        let output = tensor(std::mem::take(&mut forward.output), shape);
        let entry = ImagesBackward.prepare::<NoCheckpointing>([self.images]);
        let entry = entry.compute_bound().stateful();
        let want_images = matches!(entry, OpsKind::Tracked(_));
        let stage = Mutex::new(Stage::Computed(Box::new(forward)));
        let pass = Arc::new(Pass { stack, inputs, want_images, stage });
        let mut last = match entry {
            OpsKind::Tracked(prep) => prep.finish(pass.clone(), token()),
            OpsKind::UnTracked(prep) => prep.finish(token()),
        };
        let mut values = std::iter::repeat_with(token).take(self.units.len() - 1).chain([output]);
        for (index, parents) in self.units.into_iter().enumerate() {
            let parents = std::iter::once(last.node()).chain(parents).collect();
            let value = values.next().expect("a value a unit");
            last = enter(parents, UnitNode { pass: pass.clone(), index }, value);
        }
        let kind = DispatchTensorKind::Flex(BackendTensor::Autodiff(last));
        let kind = DispatchTensorKind::Autodiff(Box::new(kind));
        Tensor::from_dispatch(DispatchTensor { kind, autodiff: self.context })
    }
}

/// In place of a value that only the kernels see.
fn token() -> FlexTensor {
    let mut one = Buffer::new(1);
    one.fill(0.0);
    tensor(one, [1])
}

/// A node with what comes before it and two (weight) to six parents in all.
fn enter(parents: Vec<NodeGuard>, node: UnitNode, value: FlexTensor) -> Tracked {
    match parents.len() {
        2 => enter_with::<2>(parents, node, value),
        3 => enter_with::<3>(parents, node, value),
        4 => enter_with::<4>(parents, node, value),
        5 => enter_with::<5>(parents, node, value),
        _ => enter_with::<6>(parents, node, value),
    }
}

fn enter_with<const N: usize>(
    parents: Vec<NodeGuard>,
    node: UnitNode,
    value: FlexTensor,
) -> Tracked {
    let parents: [NodeGuard; N] = parents.try_into().expect("the length was matched");
    match UnitBackward.prepare::<NoCheckpointing>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(node, value),
        OpsKind::UnTracked(prep) => prep.finish(value),
    }
}

/// A forward pass, shared by the nodes of its units.
#[derive(Debug)]
struct Pass {
    stack: Stack,
    inputs: Inputs,
    want_images: bool,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// The forward pass has been computed.
    Computed(Box<Forward>),
    /// The gradients have been; each is handed out once.
    Differentiated { images: Option<Buffer>, units: Vec<Option<UnitGradients>> },
}

#[derive(Clone, Debug)]
struct UnitNode {
    pass: Arc<Pass>,
    index: usize,
}

#[derive(Debug)]
struct UnitBackward;

impl<const N: usize> Backward<Flex, N> for UnitBackward {
    type State = UnitNode;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        let UnitNode { pass, index } = ops.state;
        let upstream = grads.consume::<Flex>(&ops.node);
        let mut stage = pass.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Computed(forward) = &*stage {
            let upstream =
                if upstream.is_contiguous() { upstream } else { upstream.to_contiguous() };
            *stage = pass.differentiate(forward, slice(&upstream));
        }
        let Stage::Differentiated { units, .. } = &mut *stage else {
            unreachable!("the pass has just been differentiated")
        };
        let unit = units[index].take().expect("autodiff comes by once");
        let mut parents = ops.parents.into_iter();
        if let Some(before) = parents.next().flatten() {
            grads.register::<Flex>(before.id, token());
        }
        let gradients = parameter_gradients(unit, &pass.inputs.units[index]);
        for (parent, gradient) in parents.zip(gradients) {
            if let Some(node) = parent {
                grads.register::<Flex>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct ImagesBackward;

impl Backward<Flex, 1> for ImagesBackward {
    type State = Arc<Pass>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        grads.consume::<Flex>(&ops.node);
        let pass = ops.state;
        let mut stage = pass.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Stage::Differentiated { images, .. }, [Some(node)]) = (&mut *stage, ops.parents) {
            let gradient = images.take().expect("the images' gradient was wanted");
            grads.register::<Flex>(node.id, tensor(gradient, pass.inputs.images.shape()));
        }
    }
}

impl Pass {
    fn differentiate(&self, forward: &Forward, upstream: &[f32]) -> Stage {
        let images = slice(&self.inputs.images);
        let found = backward(
            forward,
            &self.stack,
            images,
            &self.inputs.parameters(),
            upstream,
            self.want_images,
        );
        let found = found.expect("the forward pass has checked the sizes");
        Stage::Differentiated {
            images: found.images,
            units: found.units.into_iter().map(Some).collect(),
        }
    }
}

/// Gradients of weight, bias, gamma, beta and slopes, those that the unit has.
fn parameter_gradients(found: UnitGradients, inputs: &UnitInputs) -> Vec<FlexTensor> {
    let mut gradients = vec![tensor(found.weight, inputs.weight.shape())];
    let vectors = [
        (&inputs.bias, found.bias),
        (&inputs.gamma, found.gamma),
        (&inputs.beta, found.beta),
        (&inputs.slope, found.slope),
    ];
    for (input, values) in vectors {
        if input.is_some() {
            let mut buffer = Buffer::new(values.len());
            buffer.copy_from_slice(&values);
            gradients.push(tensor(buffer, [values.len()]));
        }
    }
    gradients
}

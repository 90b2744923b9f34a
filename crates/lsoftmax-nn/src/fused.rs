//! The units on Burn's CPU backend, computed by `lsoftmax-kernels`.
//!
//! The kernels compute a chain of units together, outside of any graph. A single graph node is not
//! possible, since the number of parents of a node is a compile-time constant. The images and every unit
//! are therefore separate nodes; all but the last hold a placeholder instead of a value. The backward
//! pass of the last node computes all gradients; the nodes before it return theirs when autodiff visits
//! them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind, Flex, TensorMetadata};
use burn::module::{Param, RunningState};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn_autodiff::grads::Gradients as GradientStore;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use lsoftmax_comm::Communicator;
use lsoftmax_flex::{
    Execution, FlexTensor, TrackedTensor, as_slice, contiguous, from_buffer, into_tensor, tracked,
};
use lsoftmax_kernels::Buffer;
use lsoftmax_kernels::conv::{
    BatchShare, GradientsTo, Moments, Parameters, Stack, StackForward, UnitGradients, backward,
    forward_shared, infer,
};

use crate::{ConvUnit, NetworkError};

/// The output of the units, if the kernels support them: f32 on the CPU. Without autodiff, and in frozen
/// units, batch norm uses the running statistics.
pub(crate) fn run(
    units: &[ConvUnit],
    stack: &Arc<Stack>,
    execution: &Execution,
    ranks: &Arc<dyn Communicator>,
    images: &Tensor<4>,
) -> Result<Option<Tensor<4>>, NetworkError> {
    let [count, ..] = images.dims();
    let Some(inputs) = NetworkTensors::new(units, images) else { return Ok(None) };
    if count == 0 {
        return Ok(None);
    }
    let Some(engine) = execution.engine()? else { return Ok(None) };
    let [filters, height, width] = stack.output();

    let values = as_slice(&inputs.images);
    if !images.device().is_autodiff() {
        let moments: Vec<_> = units.iter().map(running_moments).collect();
        let output = infer(engine, stack, values, &inputs.parameters(), &moments)?;
        return Ok(Some(into_tensor(from_buffer(output, [count, filters, height, width]))));
    }
    let Some(nodes) = Nodes::new(units, images) else { return Ok(None) };
    let uses_batch = |unit: &ConvUnit| unit.gamma.is_some() && unit.trains_on(images);
    let fixed = |unit| (!uses_batch(unit)).then(|| running_moments(unit));
    let fixed: Vec<_> = units.iter().map(fixed).collect();
    let share = BatchShare::of_images(ranks.clone(), count)?;
    let mut pass = forward_shared(engine, stack, values, &inputs.parameters(), &fixed, &share)?;
    for (index, (unit, moments)) in units.iter().zip(&pass.moments).enumerate() {
        if uses_batch(unit) {
            let [_, height, width] = stack.convolved(index);
            let values = |numbers: &[f32]| Tensor::<1>::from_floats(numbers, &images.device());
            let (mean, variance) = (values(&moments.mean), values(&moments.variance));
            unit.update_running(mean, variance, share.total() * height * width);
        }
    }
    let shape = [share.total(), filters, height, width];
    if share.is_divided() {
        let output = share.gather(&pass.output);
        pass.output = Buffer::new(output.len());
        pass.output.copy_from_slice(&output);
    }
    Ok(Some(nodes.track(stack.clone(), inputs, pass, shape, share.images())))
}

/// The inputs of the units, shared, not copied.
#[derive(Debug)]
struct NetworkTensors {
    images: FlexTensor,
    units: Vec<UnitTensors>,
}

#[derive(Debug)]
struct UnitTensors {
    weight: FlexTensor,
    bias: Option<FlexTensor>,
    gamma: Option<FlexTensor>,
    beta: Option<FlexTensor>,
    slope: Option<FlexTensor>,
}

impl NetworkTensors {
    fn new(units: &[ConvUnit], images: &Tensor<4>) -> Option<Self> {
        // A missing parameter is fine; one on another backend is not.
        let vector = |parameter: &Option<Param<Tensor<1>>>| match parameter {
            Some(parameter) => contiguous(parameter.val()).map(Some),
            None => Some(None),
        };
        let units = units.iter().map(|unit| {
            Some(UnitTensors {
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
            tensor.as_ref().map_or(&[], as_slice)
        }
        self.units
            .iter()
            .map(|unit| Parameters {
                weight: as_slice(&unit.weight),
                bias: vector(&unit.bias),
                gamma: vector(&unit.gamma),
                beta: vector(&unit.beta),
                slope: vector(&unit.slope),
            })
            .collect()
    }
}

/// The running statistics of a unit; empty without batch norm.
fn running_moments(unit: &ConvUnit) -> Moments {
    let values = |running: &Option<RunningState<Tensor<1>>>| {
        let values = running.as_ref().and_then(|running| contiguous(running.value()));
        values.map_or(Vec::new(), |values| as_slice(&values).to_vec())
    };
    Moments { mean: values(&unit.running_mean), variance: values(&unit.running_var) }
}

/// The graph nodes of the inputs.
struct Nodes {
    images: NodeGuard,
    /// In the order of [`parameter_gradients`].
    units: Vec<Vec<NodeGuard>>,
    /// The first unit with a parameter that is not frozen.
    first: usize,
    context: burn::backend::DispatchAutodiffContext,
}

impl Nodes {
    /// `None` if a tensor is not on an autodiff device.
    fn new(units: &[ConvUnit], images: &Tensor<4>) -> Option<Self> {
        let tensors = units.iter().map(|unit| {
            let vectors = [&unit.bias, &unit.gamma, &unit.beta, &unit.slope];
            let vectors = vectors.into_iter().flatten().map(|vector| tracked(vector.val()));
            let tensors = std::iter::once(tracked(unit.weight.val())).chain(vectors);
            tensors.collect::<Option<Vec<_>>>()
        });
        let tensors: Vec<Vec<TrackedTensor>> = tensors.collect::<Option<_>>()?;
        let first = tensors.iter().position(|unit| unit.iter().any(TrackedTensor::is_tracked));
        let nodes = |unit: &Vec<TrackedTensor>| unit.iter().map(TrackedTensor::node).collect();
        Some(Self {
            images: tracked(images.clone())?.node(),
            units: tensors.iter().map(nodes).collect(),
            first: first.unwrap_or(0),
            context: images.clone().into_dispatch().autodiff,
        })
    }

    /// Registers images and units in the graph.
    fn track(
        self,
        stack: Arc<Stack>,
        inputs: NetworkTensors,
        mut forward: StackForward,
        shape: [usize; 4],
        rows: Range<usize>,
    ) -> Tensor<4> {
        let output = from_buffer(std::mem::take(&mut forward.output), shape);
        let entry = ImagesBackward.prepare::<NoCheckpointing>([self.images]);
        let entry = entry.compute_bound().stateful();
        let to = match entry {
            OpsKind::Tracked(_) => GradientsTo::Images,
            OpsKind::UnTracked(_) => GradientsTo::Unit(self.first),
        };
        let state = Mutex::new(PassState::Computed(Box::new(forward)));
        let pass = Arc::new(NetworkPass { stack, inputs, to, rows, state });
        let mut last = match entry {
            OpsKind::Tracked(prep) => prep.finish(pass.clone(), placeholder()),
            OpsKind::UnTracked(prep) => prep.finish(placeholder()),
        };
        let mut values =
            std::iter::repeat_with(placeholder).take(self.units.len() - 1).chain([output]);
        for (index, parents) in self.units.into_iter().enumerate() {
            let parents = std::iter::once(last.node()).chain(parents).collect();
            let value = values.next().expect("one value per unit");
            last = register(parents, UnitNode { pass: pass.clone(), index }, value);
        }
        let kind = DispatchTensorKind::Flex(BackendTensor::Autodiff(last));
        let kind = DispatchTensorKind::Autodiff(Box::new(kind));
        Tensor::from_dispatch(DispatchTensor { kind, autodiff: self.context })
    }
}

/// The value of a node whose real value exists only inside the kernels.
fn placeholder() -> FlexTensor {
    let mut one = Buffer::new(1);
    one.fill(0.0);
    from_buffer(one, [1])
}

/// Registers a node with two to six parents: the previous node, the weight and up to four vectors.
fn register(parents: Vec<NodeGuard>, node: UnitNode, value: FlexTensor) -> TrackedTensor {
    match parents.len() {
        2 => register_with::<2>(parents, node, value),
        3 => register_with::<3>(parents, node, value),
        4 => register_with::<4>(parents, node, value),
        5 => register_with::<5>(parents, node, value),
        _ => register_with::<6>(parents, node, value),
    }
}

fn register_with<const N: usize>(
    parents: Vec<NodeGuard>,
    node: UnitNode,
    value: FlexTensor,
) -> TrackedTensor {
    let parents: [NodeGuard; N] = parents.try_into().expect("the length was matched");
    match UnitBackward.prepare::<NoCheckpointing>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(node, value),
        OpsKind::UnTracked(prep) => prep.finish(value),
    }
}

/// A forward pass, shared by the nodes of its units.
#[derive(Debug)]
struct NetworkPass {
    stack: Arc<Stack>,
    inputs: NetworkTensors,
    to: GradientsTo,
    /// The images of this rank, of those of the output.
    rows: Range<usize>,
    state: Mutex<PassState>,
}

#[derive(Debug)]
enum PassState {
    /// The forward pass has been computed.
    Computed(Box<StackForward>),
    /// The gradients have been computed; each is taken once.
    Differentiated { images: Option<Buffer>, units: Vec<Option<UnitGradients>> },
}

#[derive(Clone, Debug)]
struct UnitNode {
    pass: Arc<NetworkPass>,
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
        let mut state = pass.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let PassState::Computed(forward) = &*state {
            let upstream =
                if upstream.is_contiguous() { upstream } else { upstream.to_contiguous() };
            *state = pass.differentiate(forward, as_slice(&upstream));
        }
        let PassState::Differentiated { units, .. } = &mut *state else {
            unreachable!("the pass has just been differentiated")
        };
        let unit = units[index].take().expect("autodiff visits a node once");
        let mut parents = ops.parents.into_iter();
        if let Some(before) = parents.next().flatten() {
            grads.register::<Flex>(before.id, placeholder());
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
    type State = Arc<NetworkPass>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut GradientStore,
        _checkpointer: &mut Checkpointer,
    ) {
        grads.consume::<Flex>(&ops.node);
        let pass = ops.state;
        let mut state = pass.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let (PassState::Differentiated { images, .. }, [Some(node)]) = (&mut *state, ops.parents)
        {
            let gradient = images.take().expect("the images' gradient was wanted");
            grads.register::<Flex>(node.id, from_buffer(gradient, pass.inputs.images.shape()));
        }
    }
}

impl NetworkPass {
    fn differentiate(&self, forward: &StackForward, upstream: &[f32]) -> PassState {
        let images = as_slice(&self.inputs.images);
        let size: usize = self.stack.output().iter().product();
        let upstream = &upstream[self.rows.start * size..self.rows.end * size];
        let found =
            backward(forward, &self.stack, images, &self.inputs.parameters(), upstream, self.to);
        let found = found.expect("the forward pass has checked the sizes");
        PassState::Differentiated {
            images: found.images,
            units: found.units.into_iter().map(Some).collect(),
        }
    }
}

/// The gradients of weight, bias, gamma, beta and slopes, as far as the unit has them.
fn parameter_gradients(found: UnitGradients, inputs: &UnitTensors) -> Vec<FlexTensor> {
    let mut gradients = vec![from_buffer(found.weight, inputs.weight.shape())];
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
            gradients.push(from_buffer(buffer, [values.len()]));
        }
    }
    gradients
}

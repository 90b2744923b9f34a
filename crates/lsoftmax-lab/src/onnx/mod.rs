//! A trained model as an ONNX file, for other runtimes.
//!
//! The graph takes `images`: f32 pixels from 0 to 255, `[batch, channels, height, width]`, any number of
//! them. Mean and scale are part of it. Its output is `logits`, `[batch, classes]`, or `features`,
//! `[batch, features]`. If the head normalises its weights or the features, the logits are normalised,
//! too; the margin is for training only and is not in the graph.

mod graph;
mod proto;

use burn::module::{Param, RunningState};
use burn::tensor::Tensor;
use lsoftmax_data::SCALE;
use lsoftmax_kernels::conv::EPSILON;
use lsoftmax_nn::{Activation, ConvUnit, Pool, ShortcutOrder, Unit};
use prost::Message;

use crate::model_file::TrainedModel;
use graph::GraphBuilder;
use proto::{AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto};

/// The version of the operators: the oldest with all that the graph needs would be 14.
const OPSET: i64 = 17;
/// The version of the file format that came with these operators.
const IR_VERSION: i64 = 8;
/// Features are divided by at least this, so that zeros stay zeros.
const SHORTEST: f32 = 1e-30;
/// Protocol buffers are shorter than this.
const LARGEST: usize = i32::MAX as usize;

/// What a graph computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnnxOutput {
    /// Network and head: one number per class.
    Logits,
    /// The network alone: the features.
    Features,
}

/// A model that does not fit into an ONNX file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model is {0} bytes long as ONNX, but a file has at most 2 GB; export the network alone with --embeddings, or its weights as .safetensors"
)]
pub struct TooLarge(usize);

/// The contents of an ONNX file.
///
/// # Errors
/// When it would be longer than a protocol buffer can be.
pub fn to_onnx(model: &TrainedModel, output: OnnxOutput) -> Result<Vec<u8>, TooLarge> {
    let description = &model.description;
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
    let mut metadata = vec![
        entry("recipe", description.recipe.clone()),
        entry("input", "pixels from 0 to 255; mean and scale are part of the graph".into()),
    ];
    if output == OnnxOutput::Logits {
        let names = serde_json::to_string(&description.class_names).expect("strings become JSON");
        metadata.push(entry("class_names", names));
    }
    let message = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "lsoftmax".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(graph(model, output)),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        metadata_props: metadata,
    };
    match message.encoded_len() {
        length if length > LARGEST => Err(TooLarge(length)),
        _ => Ok(message.encode_to_vec()),
    }
}

fn graph(TrainedModel { model, description }: &TrainedModel, output: OnnxOutput) -> GraphProto {
    let input = description.network.input;
    let mut graph = GraphBuilder::new(&description.recipe, "images", &input);
    let mean = graph.constant("mean", &input, &description.mean.pixels);
    graph.layer("Sub", "centred", &[mean], Vec::new());
    let scale = graph.constant("scale", &[], &[SCALE]);
    graph.layer("Mul", "scaled", &[scale], Vec::new());
    let (stack, images) = (model.network.stack(), graph.last());
    let mut outputs: Vec<String> = Vec::new();
    for (index, unit) in model.network.units.iter().enumerate() {
        let input = stack.source(index).map_or(&images, |source| &outputs[source]);
        graph.continue_from(input);
        let added = stack.addend(index).map(|addend| outputs[addend].clone());
        add_unit(&mut graph, &format!("units.{index}"), unit, added);
        outputs.push(graph.last());
    }
    graph.layer("Flatten", "features", &[], vec![AttributeProto::int("axis", 1)]);
    if output == OnnxOutput::Features {
        return graph.finish(description.network.features.size);
    }
    if let Some(scale) = model.head.scale() {
        add_normalisation(&mut graph, scale as f32);
    }
    let linear = model.head.to_linear();
    let [features, classes] = linear.weight.dims();
    let mut constants =
        vec![graph.constant("head.weight", &[features, classes], &numbers(linear.weight.val()))];
    if let Some(bias) = &linear.bias {
        constants.push(graph.constant("head.bias", &[classes], &numbers(bias.val())));
    }
    graph.layer("Gemm", "logits", &constants, Vec::new());
    graph.finish(classes)
}

/// Convolution, batch norm, shortcut, activation and pooling, as far as the unit has them. `added` is the value
/// that its shortcut adds.
fn add_unit(graph: &mut GraphBuilder, name: &str, unit: &ConvUnit, added: Option<String>) {
    let named = |part: &str| format!("{name}.{part}");
    let Unit { filters, kernel, padding, stride, activation, pool, shortcut, .. } = unit.unit();
    let weight = graph.constant(named("weight"), &unit.weight.dims(), &numbers(unit.weight.val()));
    let mut constants = vec![weight];
    if let Some(bias) = &unit.bias {
        constants.push(graph.constant(named("bias"), &[filters], &numbers(bias.val())));
    }
    let convolution = vec![
        AttributeProto::ints("kernel_shape", &kernel),
        AttributeProto::ints("pads", &[padding; 4]),
        AttributeProto::ints("strides", &[stride; 2]),
    ];
    graph.layer("Conv", named("convolved"), &constants, convolution);
    let parameters = [
        ("gamma", unit.gamma.as_ref().map(Param::val)),
        ("beta", unit.beta.as_ref().map(Param::val)),
        ("running_mean", unit.running_mean.as_ref().map(RunningState::value)),
        ("running_var", unit.running_var.as_ref().map(RunningState::value)),
    ];
    let constants: Vec<String> = parameters
        .into_iter()
        .filter_map(|(part, values)| {
            values.map(|values| graph.constant(named(part), &[filters], &numbers(values)))
        })
        .collect();
    if constants.len() == 4 {
        let epsilon = vec![AttributeProto::float("epsilon", EPSILON)];
        graph.layer("BatchNormalization", named("normalised"), &constants, epsilon);
    }
    let before = shortcut.is_some_and(|s| s.order == ShortcutOrder::BeforeActivation);
    let (before, after) = if before { (added, None) } else { (None, added) };
    if let Some(added) = before {
        graph.layer("Add", named("sum"), &[added], Vec::new());
    }
    match (activation, &unit.slope) {
        (Activation::Prelu, Some(slope)) => {
            let slope = graph.constant(named("slope"), &[filters, 1, 1], &numbers(slope.val()));
            graph.layer("PRelu", named("activated"), &[slope], Vec::new());
        }
        (Activation::Relu, _) => graph.layer("Relu", named("activated"), &[], Vec::new()),
        _ => {}
    }
    if let Some(added) = after {
        graph.layer("Add", named("sum"), &[added], Vec::new());
    }
    match pool {
        Pool::None => {}
        Pool::Max => {
            let pooling = vec![
                AttributeProto::int("ceil_mode", 1),
                AttributeProto::ints("kernel_shape", &[2, 2]),
                AttributeProto::ints("strides", &[2, 2]),
            ];
            graph.layer("MaxPool", named("pooled"), &[], pooling);
        }
        Pool::Average => graph.layer("GlobalAveragePool", named("average"), &[], Vec::new()),
    }
}

/// Scales features to a length; zeros stay zeros.
fn add_normalisation(graph: &mut GraphBuilder, length: f32) {
    let features = graph.last();
    let along = vec![AttributeProto::ints("axes", &[1]), AttributeProto::int("keepdims", 1)];
    graph.layer("ReduceL2", "feature_norm", &[], along);
    let shortest = graph.constant("shortest", &[], &[SHORTEST]);
    graph.layer("Max", "divisor", &[shortest], Vec::new());
    let divisor = graph.last();
    graph.node("Div", "unit_features", vec![features, divisor], Vec::new());
    let length = graph.constant("head.scale", &[], &[length]);
    graph.layer("Mul", "scaled_features", &[length], Vec::new());
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

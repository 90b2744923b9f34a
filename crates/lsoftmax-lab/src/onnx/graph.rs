//! A graph in which every layer takes the output of the one before it, unless it is told another.

use super::proto::{
    AttributeProto, Dimension, DimensionValue, FLOAT, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorType, TypeProto, ValueInfoProto,
};

/// The name of the first dimension of inputs and outputs, the number of images.
const BATCH: &str = "batch";

/// A graph being built.
pub struct GraphBuilder {
    graph: GraphProto,
    /// The value that the next layer takes.
    last: String,
}

impl GraphBuilder {
    /// A graph with one input of images of this size.
    pub fn new(name: &str, input: &str, size: &[usize]) -> Self {
        let graph = GraphProto {
            name: name.into(),
            input: vec![value_info(input, size)],
            ..GraphProto::default()
        };
        Self { graph, last: input.into() }
    }

    /// The value that the next layer takes.
    pub fn last(&self) -> String {
        self.last.clone()
    }

    /// Makes an earlier value the one that the next layer takes.
    pub fn continue_from(&mut self, value: &str) {
        self.last = value.to_owned();
    }

    /// Adds a constant and returns its name.
    pub fn constant(&mut self, name: impl Into<String>, dims: &[usize], values: &[f32]) -> String {
        assert_eq!(dims.iter().product::<usize>(), values.len(), "the values have this shape");
        let name = name.into();
        self.graph.initializer.push(TensorProto {
            dims: dims.iter().map(|size| *size as i64).collect(),
            data_type: FLOAT,
            name: name.clone(),
            raw_data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        });
        name
    }

    /// Adds a layer that takes the last value, and constants or other values; its output is the last value then.
    pub fn layer(
        &mut self,
        op_type: &str,
        output: impl Into<String>,
        others: &[String],
        attributes: Vec<AttributeProto>,
    ) {
        let inputs = [&[self.last()], others].concat();
        self.node(op_type, output, inputs, attributes);
    }

    /// Adds a node with any inputs; its output is the last value then.
    pub fn node(
        &mut self,
        op_type: &str,
        output: impl Into<String>,
        input: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        let output = output.into();
        self.graph.node.push(NodeProto {
            input,
            output: vec![output.clone()],
            name: output.clone(),
            op_type: op_type.into(),
            attribute,
        });
        self.last = output;
    }

    /// The graph, whose output is the last value: so many numbers per image.
    pub fn finish(mut self, size: usize) -> GraphProto {
        self.graph.output = vec![value_info(&self.last, &[size])];
        self.graph
    }
}

/// Numbers of a size per image.
fn value_info(name: &str, size: &[usize]) -> ValueInfoProto {
    let batch = Dimension { value: Some(DimensionValue::DimParam(BATCH.into())) };
    let sizes = size.iter().map(|size| DimensionValue::DimValue(*size as i64));
    let sizes = sizes.map(|value| Dimension { value: Some(value) });
    let shape = TensorShapeProto { dim: [batch].into_iter().chain(sizes).collect() };
    let tensor_type = TensorType { elem_type: FLOAT, shape: Some(shape) };
    let r#type = TypeProto { tensor_type: Some(tensor_type) };
    ValueInfoProto { name: name.into(), r#type: Some(r#type) }
}

//! Whether two tensors are the same values in the same memory.

use std::sync::{Arc, Weak};

use burn::tensor::{Bytes, Shape};

use crate::FlexTensor;

/// Recognises the values of a tensor again, without keeping them alive.
///
/// It refers weakly to the tensor's memory. Burn writes to the memory of a tensor only through `Arc::make_mut` and
/// `Arc::get_mut`, which leave memory alone that anything else refers to, and cut weak references off (or refuse).
/// So as long as the reference holds, the values are the same, and no other tensor can get the address.
#[derive(Clone, Debug)]
pub struct TensorIdentity {
    memory: Weak<Bytes>,
    start: usize,
    shape: Shape,
}

impl TensorIdentity {
    /// The identity of a tensor made by [`contiguous`](crate::contiguous).
    pub fn new(tensor: &FlexTensor) -> Self {
        let layout = tensor.layout();
        let memory = Arc::downgrade(&tensor.data_arc());
        Self { memory, start: layout.start_offset(), shape: layout.shape().clone() }
    }

    /// Whether a contiguous tensor has the same values in the same memory. Never true after they have changed;
    /// false for a copy of them.
    pub fn is_of(&self, tensor: &FlexTensor) -> bool {
        let layout = tensor.layout();
        let same_memory =
            self.memory.upgrade().is_some_and(|memory| Arc::ptr_eq(&memory, &tensor.data_arc()));
        same_memory
            && tensor.is_contiguous()
            && (layout.start_offset(), layout.shape()) == (self.start, &self.shape)
    }
}

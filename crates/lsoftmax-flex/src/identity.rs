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

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::contiguous;

    fn identity(tensor: &Tensor<1>) -> TensorIdentity {
        TensorIdentity::new(&contiguous(tensor.clone()).unwrap())
    }

    fn is_of(identity: &TensorIdentity, tensor: &Tensor<1>) -> bool {
        identity.is_of(&contiguous(tensor.clone()).unwrap())
    }

    #[test]
    fn a_tensor_is_recognised_until_its_values_change_even_in_place() {
        let tensor = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &Device::flex());
        let known = identity(&tensor);
        assert!(is_of(&known, &tensor) && is_of(&known, &tensor.clone()));
        let address = contiguous(tensor.clone()).unwrap().bytes().as_ptr();
        // Nothing else refers to the tensor: Burn adds in place.
        let changed = tensor.add_scalar(1.0);
        assert_eq!(contiguous(changed.clone()).unwrap().bytes().as_ptr(), address);
        assert!(!is_of(&known, &changed));
        assert!(is_of(&identity(&changed), &changed));
    }

    #[test]
    fn other_tensors_and_other_parts_of_the_same_memory_are_not_it() {
        let device = Device::flex();
        let tensor = Tensor::<1>::from_floats([1.0, 1.0, 1.0, 1.0], &device);
        let known = identity(&tensor);
        assert!(!is_of(&known, &Tensor::from_floats([1.0, 1.0, 1.0, 1.0], &device)));
        assert!(!is_of(&known, &tensor.clone().slice(0..3)));
        let [first, second] = [0..2, 2..4].map(|range| tensor.clone().slice(range));
        assert!(is_of(&identity(&first), &first) && !is_of(&identity(&first), &second));
        // A tensor that is gone is not recognised in one that may have its address.
        drop((tensor, first, second));
        assert!(!is_of(&known, &Tensor::from_floats([1.0, 1.0, 1.0, 1.0], &device)));
    }
}

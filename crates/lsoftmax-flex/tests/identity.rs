//! What is derived from a tensor is recognised as stale whenever the values change.

use burn::tensor::{Device, Tensor};
use lsoftmax_flex::{TensorIdentity, contiguous};

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

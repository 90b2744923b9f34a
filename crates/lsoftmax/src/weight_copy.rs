//! The weights of a head in bf16, kept between its passes.

use std::sync::{Arc, Mutex, PoisonError};

use lsoftmax_flex::{FlexTensor, TensorIdentity};
use lsoftmax_kernels::head::Bf16Weights;

/// W in bf16, which a head with [`Precision::Bf16Weights`](crate::Precision::Bf16Weights) keeps beside its weights.
///
/// The first forward pass after the weights have changed makes it; the backward pass, further batches of an
/// accumulated gradient and batches of an evaluation read it. Nobody has to renew it: it belongs to the values that
/// it was made of, in their memory ([`TensorIdentity`]), and is not used for any other tensor, nor after the
/// optimiser has changed them in place. It is not saved with a model, and clones of a head share it.
#[derive(Clone, Debug, Default)]
pub struct WeightCopy(Arc<Mutex<Option<Kept>>>);

/// What is kept, and the weights that it belongs to.
#[derive(Debug)]
struct Kept {
    weights: TensorIdentity,
    copy: Arc<Bf16Weights>,
}

impl WeightCopy {
    /// The copy, if it is one of these weights. Another one is dropped, so that its memory can be used again.
    pub(crate) fn of(&self, weight: &FlexTensor) -> Option<Arc<Bf16Weights>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(slot.take_if(|kept| !kept.weights.is_of(weight)));
        slot.as_ref().map(|kept| kept.copy.clone())
    }

    /// Keeps what a forward pass with these weights has made.
    pub(crate) fn keep(&self, weight: &FlexTensor, copy: &Arc<Bf16Weights>) {
        let kept = Kept { weights: TensorIdentity::new(weight), copy: copy.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// The size in bytes of what is kept at the moment.
    pub fn bytes(&self) -> usize {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map_or(0, |kept| kept.copy.bytes())
    }
}

//! Stochastic gradient descent on some rows of a matrix.

use burn::module::Param;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// SGD with momentum and weight decay for the weights of sampled classes: a step changes only the rows
/// that have a gradient, and only their momentum, and costs in proportion to their number.
///
/// On these rows a step is that of PyTorch's and Burn's SGD (without dampening): with the gradient g, v ← m v +
/// g + d w and w ← w − r v. See [`MarginHead::sampled`](crate::MarginHead::sampled) for an example.
#[derive(Clone, Debug)]
pub struct RowSgd {
    momentum: f64,
    weight_decay: f64,
    /// v, of the shape of the weights; `None` before the first step.
    velocity: Option<Tensor<2>>,
}

impl RowSgd {
    /// An optimiser with these coefficients.
    pub fn new(momentum: f64, weight_decay: f64) -> Self {
        Self { momentum, weight_decay, velocity: None }
    }

    /// This optimiser with the velocity of another, of the shape of the weights.
    pub fn with_velocity(mut self, velocity: Option<Tensor<2>>) -> Self {
        self.velocity = velocity.map(Tensor::inner);
        self
    }

    /// The velocity, of the shape of the weights; `None` before the first step.
    pub fn velocity(&self) -> Option<&Tensor<2>> {
        self.velocity.as_ref()
    }

    /// Takes a step on some rows of `weight`.
    ///
    /// # Shapes
    /// - weight: `[classes, features]`
    /// - rows: `[sampled]`, each at most once
    /// - gradient: `[sampled, features]`
    pub fn step(
        &mut self,
        rate: f64,
        weight: Param<Tensor<2>>,
        rows: Tensor<1, Int>,
        gradient: Tensor<2>,
    ) -> Param<Tensor<2>> {
        let (rows, gradient) = (rows.inner(), gradient.inner());
        weight.map(|weight| {
            let is_tracked = weight.is_require_grad();
            let is_autodiff = weight.device().is_autodiff();
            let weight = weight.inner();
            let velocity = self.velocity.take().unwrap_or_else(|| weight.zeros_like());
            let old = weight.clone().select(0, rows.clone());
            let gradient = old.clone().mul_scalar(self.weight_decay) + gradient;
            let moved = velocity.clone().select(0, rows.clone()).mul_scalar(self.momentum);
            let moved = gradient + moved;
            let new = old - moved.clone().mul_scalar(rate);
            let assign = IndexingUpdateOp::Assign;
            self.velocity = Some(velocity.select_assign(0, rows.clone(), moved, assign));
            let weight = weight.select_assign(0, rows, new, assign);
            if is_autodiff {
                Tensor::from_inner(weight).set_require_grad(is_tracked)
            } else {
                weight
            }
        })
    }
}

//! The numbers that a margin is computed with: scalars or tensors.

use std::ops::{Add, Div, Mul, Neg, Sub};

use burn::tensor::Tensor;

/// A number, or a tensor of numbers with the same operations elementwise.
///
/// An [`AngularMargin`](crate::AngularMargin) is written once, for any `Number`. The fused operation
/// computes it with `f64`, the composed one with `Tensor<2>`. These tensors are never part of a graph,
/// so operations need no derivative.
pub trait Number:
    Clone
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// This value in every element.
    fn constant(&self, value: f64) -> Self;

    /// 1 where this is below `bound`, else 0.
    fn below(&self, bound: f64) -> Self;

    /// `yes` where this is 1, `no` where it is 0.
    fn choose(self, yes: Self, no: Self) -> Self;

    /// The absolute value.
    fn abs(self) -> Self;

    /// The cosine.
    fn cos(self) -> Self;

    /// The sine.
    fn sin(self) -> Self;

    /// The arc cosine, from 0 to π.
    fn acos(self) -> Self;

    /// The largest integer that is not greater.
    fn floor(self) -> Self;

    /// The value clamped to `low` … `high`.
    fn clamp(self, low: f64, high: f64) -> Self;

    /// The smallest sine to divide by, about the square root of the machine epsilon. Angles with a smaller
    /// sine cannot be distinguished from 0 or π by their cosine.
    fn smallest_sine(&self) -> f64;

    /// 1 where this is above `bound`, else 0.
    fn above(&self, bound: f64) -> Self {
        (-self.clone()).below(-bound)
    }
}

impl Number for f64 {
    fn constant(&self, value: f64) -> Self {
        value
    }

    fn below(&self, bound: f64) -> Self {
        f64::from(u8::from(*self < bound))
    }

    fn choose(self, yes: Self, no: Self) -> Self {
        if self == 1.0 { yes } else { no }
    }

    fn abs(self) -> Self {
        f64::abs(self)
    }

    fn cos(self) -> Self {
        f64::cos(self)
    }

    fn sin(self) -> Self {
        f64::sin(self)
    }

    fn acos(self) -> Self {
        f64::acos(self)
    }

    fn floor(self) -> Self {
        f64::floor(self)
    }

    fn clamp(self, low: f64, high: f64) -> Self {
        f64::clamp(self, low, high)
    }

    fn smallest_sine(&self) -> f64 {
        1e-8
    }
}

impl Number for Tensor<2> {
    fn constant(&self, value: f64) -> Self {
        self.full_like(value)
    }

    fn below(&self, bound: f64) -> Self {
        self.clone().lower_scalar(bound).float().cast(self.dtype())
    }

    fn choose(self, yes: Self, no: Self) -> Self {
        no.mask_where(self.equal_scalar(1.0), yes)
    }

    fn abs(self) -> Self {
        Tensor::abs(self)
    }

    fn cos(self) -> Self {
        Tensor::cos(self)
    }

    fn sin(self) -> Self {
        Tensor::sin(self)
    }

    fn acos(self) -> Self {
        Tensor::acos(self)
    }

    fn floor(self) -> Self {
        Tensor::floor(self)
    }

    fn clamp(self, low: f64, high: f64) -> Self {
        Tensor::clamp(self, low, high)
    }

    fn smallest_sine(&self) -> f64 {
        self.dtype().finfo().map_or(1e-3, |info| info.epsilon.sqrt())
    }
}

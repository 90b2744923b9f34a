//! One unit of a stack: a convolution and what follows it.

use serde::{Deserialize, Serialize};

/// A convolution, optionally followed by batch norm, a shortcut, an activation and pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Output channels.
    pub filters: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Zero padding on every side of the input.
    pub padding: usize,
    /// Stride of the convolution: 1 or 2.
    pub stride: usize,
    /// Whether the convolution adds a bias.
    pub bias: bool,
    /// Whether batch norm follows.
    pub norm: bool,
    /// The activation.
    pub activation: Activation,
    /// The pooling at the end.
    pub pool: Pool,
    /// Which output it reads: that of the unit this many units before it. 1 is the previous one; for the
    /// first unit, the images.
    pub from: usize,
    /// The output of an earlier unit that is added.
    pub shortcut: Option<Shortcut>,
}

/// The activation of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// PReLU: u if u > 0, else slope · u, with one slope per filter.
    #[default]
    Prelu,
    /// ReLU: max(u, 0).
    Relu,
    /// None.
    None,
}

/// The pooling of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// None.
    None,
    /// The maximum of 2x2 pixels, with a stride of 2; half an odd size is rounded up, as in Caffe.
    Max,
    /// The mean of all pixels, at the end of a stack.
    Average,
}

/// The output of an earlier unit, which is added to that of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortcut {
    /// How many units before this one it is; 1 is the previous one.
    pub from: usize,
    /// Where it is added.
    pub order: ShortcutOrder,
}

/// Whether a shortcut is added before or after the activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortcutOrder {
    /// Before it, as in ResNet.
    BeforeActivation,
    /// After it, as in SphereFace.
    AfterActivation,
}

impl Unit {
    /// A 3x3 convolution with padding 1, batch norm and PReLU.
    pub fn new(filters: usize) -> Self {
        Self {
            filters,
            kernel: [3, 3],
            padding: 1,
            stride: 1,
            bias: false,
            norm: true,
            activation: Activation::Prelu,
            pool: Pool::None,
            from: 1,
            shortcut: None,
        }
    }

    /// Whether it has slopes to learn.
    pub fn has_slopes(&self) -> bool {
        self.activation == Activation::Prelu
    }
}

//! A network as a Burn module.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::Stack;

use crate::unit::run;
use crate::{ConvUnit, ConvUnitConfig, NetworkConfig, NetworkError};

impl NetworkConfig {
    /// Builds the network; its weights are drawn here and now, first layer first.
    ///
    /// # Errors
    /// When the description does not fit together.
    pub fn init(&self, device: &Device) -> Result<Network, NetworkError> {
        let stack = self.stack()?;
        let units = stack.units().iter().enumerate();
        let units = units
            .map(|(i, unit)| ConvUnitConfig::of_unit(stack.unit_input(i)[0], unit).init(device))
            .collect();
        Ok(Network { units, stack })
    }
}

/// A network that turns images into features. Built by [`NetworkConfig::init`].
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use lsoftmax_nn::NetworkConfig;
/// let device = Device::flex();
/// let network = NetworkConfig::mnist_2d().init(&device)?;
/// let features = network.forward(Tensor::zeros([4, 1, 28, 28], &device))?;
/// assert_eq!(features.dims(), [4, 2]);
/// # Ok::<(), lsoftmax_nn::NetworkError>(())
/// ```
#[derive(Module, Debug)]
pub struct Network {
    /// The layers, first to last. The last one, whose kernel is as large as its input, gives the
    /// features.
    pub units: Vec<ConvUnit>,
    /// Sizes of everything, layer by layer.
    #[module(skip)]
    stack: Stack,
}

impl Network {
    /// The features of images. Train on a device with autodiff, infer on a plain one
    /// ([`Module::valid`]).
    ///
    /// # Shapes
    /// - images: `[images, channels, height, width]`
    /// - output: `[images, features]`
    ///
    /// # Errors
    /// When the images have another size than the network was described for, or the environment
    /// asks for a kernel path that the CPU lacks.
    pub fn forward(&self, images: Tensor<4>) -> Result<Tensor<2>, NetworkError> {
        let [count, channels, height, width] = images.dims();
        let (found, expected) = ([channels, height, width], self.stack.input());
        if found != expected {
            return Err(NetworkError::Images { expected, found });
        }
        let [features, ..] = self.stack.output();
        Ok(run(&self.units, images)?.reshape([count, features]))
    }

    /// Sets the precision of products on the CPU.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        for unit in &mut self.units {
            unit.precision = precision;
        }
        self
    }

    /// Sets whether the network is composed of Burn's own operations even where there are kernels for
    /// it: to compare the two.
    pub fn with_composed(mut self, composed: bool) -> Self {
        for unit in &mut self.units {
            unit.composed = composed;
        }
        self
    }

    /// The sizes of every layer, in the words of the CPU kernels.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

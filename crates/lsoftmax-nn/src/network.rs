//! A network as a Burn module.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use lsoftmax_comm::{Alone, Communicator};
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::{Stack, Unit};

use crate::{ConvUnit, NetworkConfig, NetworkError, run};

impl NetworkConfig {
    /// Builds the network. Its weights are initialised eagerly, in the order of the layers. Its
    /// [`Execution`] is [`Execution::default`]; [`Network::with_execution`] sets another.
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn init(&self, device: &Device) -> Result<Network, NetworkError> {
        self.init_with(Execution::default(), device)
    }

    /// As [`NetworkConfig::init`], with an execution that was chosen before.
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn init_with(
        &self,
        execution: Execution,
        device: &Device,
    ) -> Result<Network, NetworkError> {
        let stack = self.stack()?;
        let unit = |(index, unit): (usize, &Unit)| {
            let channels = stack.unit_input(index)[0];
            ConvUnit::new_with(channels, *unit, execution.clone(), device)
        };
        let units = stack.units().iter().enumerate().map(unit).collect();
        Ok(Network { units, stack: Arc::new(stack), execution, ranks: Arc::new(Alone) })
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
    /// The sizes of every layer.
    #[module(skip)]
    stack: Arc<Stack>,
    /// The execution of all units.
    #[module(skip)]
    execution: Execution,
    /// The ranks that train it together.
    #[module(skip)]
    ranks: Arc<dyn Communicator>,
}

impl Network {
    /// The features of images. Train on a device with autodiff, infer on a plain one
    /// ([`Module::valid`]).
    ///
    /// # Shapes
    /// - images: `[images, channels, height, width]`
    /// - output: `[images, features]`; in training on several [ranks](Network::with_ranks) those of the whole batch
    ///
    /// # Errors
    /// When the size of the images differs from the input size of the network, the requested kernel path is
    /// unavailable, or the images are not this rank's share of a batch.
    pub fn forward(&self, images: Tensor<4>) -> Result<Tensor<2>, NetworkError> {
        let [_, channels, height, width] = images.dims();
        let (found, expected) = ([channels, height, width], self.stack.input());
        if found != expected {
            return Err(NetworkError::Images { expected, found });
        }
        let [features, ..] = self.stack.output();
        let output = run::units(&self.units, &self.stack, &self.execution, &self.ranks, images)?;
        let [count, ..] = output.dims();
        Ok(output.reshape([count, features]))
    }

    /// Sets the execution of the network. It overrides that of the
    /// [units](ConvUnit::with_execution).
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use lsoftmax_nn::{Execution, NetworkConfig, Precision};
    /// let network = NetworkConfig::mnist().init(&Device::flex())?;
    /// let network = network.with_execution(Execution::new(Precision::Bf16));
    /// # Ok::<(), lsoftmax_nn::NetworkError>(())
    /// ```
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Trains the network together with other ranks, each of which has the same weights. In training, a rank then
    /// takes its [share](crate::BatchShare) of a batch and gets the features of the whole batch; statistics and
    /// gradients are those of the whole batch, with the bits of one process. Inference is not affected.
    pub fn with_ranks(mut self, ranks: Arc<dyn Communicator>) -> Self {
        self.ranks = ranks;
        self
    }

    /// The ranks that train the network together.
    pub fn ranks(&self) -> &Arc<dyn Communicator> {
        &self.ranks
    }

    /// The execution of the network.
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The sizes of every layer, as the CPU kernels describe them.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

//! Errors in networks and their inputs.

use lsoftmax_kernels::EngineError;
use lsoftmax_kernels::conv::StackError;

/// Why a network could not be described, built or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No network has this name.
    #[error("there is no network called \"{name}\": the networks are {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// A size is zero or too large.
    #[error("{what} must be from 1 to {most}, but is {found}")]
    Size {
        /// A description of the size.
        what: String,
        /// Its value.
        found: usize,
        /// The largest valid value.
        most: usize,
    },
    /// There are too many parameters.
    #[error(
        "the network would have {parameters} parameters, which is more than {most}; use fewer filters or features, or more pooling"
    )]
    Parameters {
        /// The number of parameters.
        parameters: u128,
        /// The largest valid number.
        most: u128,
    },
    /// A residual stage does not fit.
    #[error("the residual stage {stage} {problem}")]
    Residual {
        /// Its name.
        stage: String,
        /// What is wrong.
        problem: String,
    },
    /// The features cannot be averages.
    #[error("a feature layer that is an average {0}")]
    Average(String),
    /// The size of the images differs from the input size of the network.
    #[error(
        "the network takes images of {} x {} x {} (channels, height, width), but these are {} x {} x {}",
        expected[0], expected[1], expected[2], found[0], found[1], found[2]
    )]
    Images {
        /// Channels, height and width of the network's input.
        expected: [usize; 3],
        /// Channels, height and width of the images.
        found: [usize; 3],
    },
    /// Several ranks, but not the kernels.
    #[error(
        "several ranks can train a network only with the CPU kernels, not with Burn's own operations or on another device"
    )]
    Ranks,
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The layers do not fit together.
    #[error(transparent)]
    Stack(#[from] StackError),
}

//! What can be wrong with a network or its images, in sentences.

use lsoftmax_kernels::EngineError;
use lsoftmax_kernels::conv::StackError;

/// Why a network could not be described, built or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// There is no network of this name.
    #[error("there is no network called \"{name}\": the networks are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A size is zero or beyond reason.
    #[error("{what} must be from 1 to {most}, but is {found}")]
    Size {
        /// Which size, and of what.
        what: String,
        /// What the description says.
        found: usize,
        /// The largest that is taken.
        most: usize,
    },
    /// There are too many weights.
    #[error(
        "the network would have {parameters} parameters, which is more than {most}: take fewer filters or features, or pool more"
    )]
    Parameters {
        /// How many there would be.
        parameters: u128,
        /// The most that is taken.
        most: u128,
    },
    /// Images of another size than the network's.
    #[error(
        "the network takes images of {} x {} x {} (channels, height, width), but these are {} x {} x {}",
        expected[0], expected[1], expected[2], found[0], found[1], found[2]
    )]
    Images {
        /// Channels, height and width that the network was described for.
        expected: [usize; 3],
        /// Those of the images.
        found: [usize; 3],
    },
    /// The kernel path asked for is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The layers don't fit together.
    #[error(transparent)]
    Stack(#[from] StackError),
}

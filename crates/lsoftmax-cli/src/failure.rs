//! How the program ends without a result.

use std::process::ExitCode;

use lsoftmax_data::{DataError, fetch::FetchError};
use lsoftmax_faces::FacesError;
use lsoftmax_lab::bench::BenchError;
use lsoftmax_lab::demo::DemoError;
use lsoftmax_lab::faces::FaceError;
use lsoftmax_lab::figures::FigureError;
use lsoftmax_lab::inference::InferenceError;
use lsoftmax_lab::loss::LossError;
use lsoftmax_lab::plot::PlotError;
use lsoftmax_lab::recipe::{ForDataError, RecipeError};
use lsoftmax_lab::records::RecordError;
use lsoftmax_lab::report::ReportError;
use lsoftmax_lab::reproduce::ReproduceError;
use lsoftmax_lab::run::RunError;
use lsoftmax_lab::threads::ThreadsError;
use lsoftmax_lab::train::TrainError;
use lsoftmax_nn::NetworkError;

use crate::output::tell;

/// The exit codes other than 0; `help::EXIT_CODES` explains them to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The machine failed.
    Failed = 1,
    /// Other input or arguments would help.
    BadInput = 2,
    /// A signal stopped the program, as a shell reports Ctrl-C.
    Interrupted = 130,
}

/// Why there is no result: an exit code, and one sentence for stderr.
///
/// Commands return it. Every error type of the lab is converted explicitly, so that one whose exit
/// code nobody has decided does not compile.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    sentence: String,
}

impl Failure {
    /// The machine failed.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self { code: Code::Failed, sentence: sentence.into() }
    }

    /// The input or the arguments are wrong.
    pub fn bad_input(sentence: impl Into<String>) -> Self {
        Self { code: Code::BadInput, sentence: sentence.into() }
    }

    /// A signal stopped the program.
    pub fn interrupted(sentence: impl Into<String>) -> Self {
        Self { code: Code::Interrupted, sentence: sentence.into() }
    }

    /// The exit code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The same failure with words before its sentence.
    pub fn prefixed(self, words: &str) -> Self {
        Self { sentence: format!("{words}{}", self.sentence), ..self }
    }

    /// The same failure with words after its sentence.
    pub fn followed_by(self, words: &str) -> Self {
        Self { sentence: format!("{}{words}", self.sentence), ..self }
    }

    /// Prints the sentence as one line on stderr; file names in it may hold line breaks or escape
    /// codes.
    pub fn report(self) -> ExitCode {
        let blank = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = self.sentence.chars().map(blank).collect();
        tell(&format!("lsoftmax: {line}"));
        self.into()
    }
}

impl From<Failure> for ExitCode {
    /// The exit code without a word.
    fn from(failure: Failure) -> Self {
        ExitCode::from(failure.code as u8)
    }
}

/// Converts errors, each with a predicate that is true if other input would help.
macro_rules! from_errors {
    ($($error:ty: $is_bad_input:expr,)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let is_bad_input: fn(&$error) -> bool = $is_bad_input;
                let code = if is_bad_input(&error) { Code::BadInput } else { Code::Failed };
                Self { code, sentence: error.to_string() }
            }
        }
    )*};
}

from_errors! {
    BenchError: |_| true,
    DataError: |_| true,
    DemoError: DemoError::is_bad_input,
    FaceError: FaceError::is_bad_input,
    FacesError: FacesError::is_bad_input,
    FetchError: FetchError::is_bad_input,
    FigureError: FigureError::is_bad_input,
    ForDataError: |_| true,
    LossError: LossError::is_bad_input,
    NetworkError: |_| true,
    PlotError: PlotError::is_bad_input,
    RecipeError: |_| true,
    RecordError: RecordError::is_bad_input,
    ReportError: ReportError::is_bad_input,
    ReproduceError: ReproduceError::is_bad_input,
    RunError: RunError::is_bad_input,
    ThreadsError: |_| true,
    TrainError: TrainError::is_bad_input,
    InferenceError: InferenceError::is_bad_input,
}

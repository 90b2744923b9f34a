//! The program as one of several ranks, started by mpirun.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use lsoftmax_data::{DataDir, shell_word};
use lsoftmax_mpi::{Session, StartError, launch, start};

use crate::failure::{Code, Failure};

/// How long a rank may take before the first step, where images are read.
const START_LIMIT: Duration = Duration::from_secs(600);

/// How long a rank waits before it reports a failure: if all ranks have it, rank 0 ends them meanwhile.
const FIRST_REPORTS: Duration = Duration::from_secs(3);

/// The ranks that mpirun has started.
pub fn session() -> Result<Session, Failure> {
    start(START_LIMIT).map_err(|error| match error {
        StartError::NotBuilt { .. } | StartError::OtherLibrary { .. } => {
            Failure::bad_input(error.to_string())
        }
        StartError::Mpi(_) => Failure::failed(error.to_string()),
    })
}

/// Whether this rank prints and writes for all.
pub fn is_first() -> bool {
    launch().rank == 0
}

/// Reports a failure before there is a session: rank 0 does, in the same words as all others would.
pub fn report_at_start(failure: Failure) -> ExitCode {
    if is_first() { failure.report() } else { failure.into() }
}

/// Reports a failure, and ends the other ranks.
pub fn report(session: &Session, failure: Failure) -> ExitCode {
    if session.comm().size() == 1 {
        return failure.report();
    }
    if failure.code() == Code::Interrupted {
        // All ranks have agreed to stop.
        return report_at_start(failure);
    }
    let rank = session.comm().rank();
    if rank > 0 {
        thread::sleep(FIRST_REPORTS);
    }
    let code = failure.code();
    failure.prefixed(&format!("rank {rank}: ")).report();
    session.abort(code as u8);
    ExitCode::from(code as u8)
}

/// What to do after a rank was lost.
pub fn advice(out: &Path, data: &DataDir) -> String {
    let (run, data) = (shell_word(out), data.option());
    format!("resume with `lsoftmax train --resume {run}{data}` under any number of ranks")
}

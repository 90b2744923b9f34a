//! The ranks of a program from its start to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lsoftmax_comm::{Alone, Communicator};

use crate::launch;

/// Why the ranks could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Several ranks, but the program cannot communicate.
    #[error(
        "started as {ranks} ranks, but this program was built without MPI; build it with `cargo install --locked --path crates/lsoftmax-cli --features mpi`, or start it without mpirun"
    )]
    NotBuilt {
        /// The number of ranks.
        ranks: usize,
    },
    /// The MPI library failed.
    #[error("MPI could not be started: {0}")]
    Mpi(String),
    /// The program was started by the launcher of another MPI library.
    #[error(
        "the launcher started {expected} ranks, but the MPI library that this program is linked with finds {found}; use the mpirun of that library"
    )]
    OtherLibrary {
        /// The number of ranks by the launcher.
        expected: usize,
        /// The number of ranks by the library.
        found: usize,
    },
}

/// What the messages of a rank need to know besides the ranks.
#[derive(Debug)]
pub(crate) struct Terms {
    pub time_limit: Duration,
    /// What to do after a rank was lost.
    pub advice: String,
}

#[cfg(feature = "mpi")]
impl Terms {
    /// The end of a sentence.
    pub fn then_advice(&self) -> String {
        match self.advice.as_str() {
            "" => String::new(),
            advice => format!("; {advice}"),
        }
    }
}

/// The ranks of a program. MPI is shut down when this is dropped.
#[derive(Debug)]
pub struct Session {
    comm: Arc<dyn Communicator>,
    terms: Arc<Mutex<Terms>>,
    #[cfg(feature = "mpi")]
    mpi: Option<(Arc<crate::rank::MpiRank>, crate::rank::Library)>,
}

impl Session {
    /// The ranks.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.comm
    }

    /// Sets how long a rank may take to answer.
    pub fn set_time_limit(&self, time_limit: Duration) {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner).time_limit = time_limit;
    }

    /// Sets what to do after a rank was lost, as a clause: "resume with …".
    pub fn set_advice(&self, advice: impl Into<String>) {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner).advice = advice.into();
    }

    /// Rank 0 says what to do as soon as `stop` is set, which mpirun's signal does: when a rank on another machine was
    /// lost, mpirun ends the others a second later.
    pub fn watch(&self, stop: Arc<AtomicBool>) {
        if self.comm.size() == 1 || !self.comm.is_first() {
            return;
        }
        let terms = Arc::clone(&self.terms);
        let work = move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
            }
            let advice = terms.lock().unwrap_or_else(PoisonError::into_inner).advice.clone();
            eprintln!(
                "told to stop, which the ranks do after this step; if one of them was lost, {advice}"
            );
        };
        // Without the thread nothing is lost but the line.
        let _ = thread::Builder::new().name("stop".into()).spawn(work);
    }

    /// Ends all ranks with an exit code, after the sentence has been printed. Without other ranks, returns.
    pub fn abort(&self, code: u8) {
        #[cfg(feature = "mpi")]
        if let Some((rank, _)) = &self.mpi {
            rank.abort(code);
        }
        let _ = code;
    }
}

/// The ranks that the launcher has started. A rank may take `time_limit` to answer. If there are several, a panic of
/// any thread ends all of them.
///
/// # Errors
/// When there are several ranks and the program was built without MPI, or MPI fails.
pub fn start(time_limit: Duration) -> Result<Session, StartError> {
    let terms = Arc::new(Mutex::new(Terms { time_limit, advice: String::new() }));
    let ranks = launch().size;
    if ranks == 1 {
        return Ok(Session {
            comm: Arc::new(Alone),
            terms,
            #[cfg(feature = "mpi")]
            mpi: None,
        });
    }
    #[cfg(feature = "mpi")]
    {
        let (library, rank) = crate::rank::start(Arc::clone(&terms))?;
        let found = rank.size();
        if found != ranks {
            return Err(StartError::OtherLibrary { expected: ranks, found });
        }
        end_all_on_panic(rank.rank(), Arc::clone(&terms));
        let rank = Arc::new(rank);
        Ok(Session { comm: rank.clone(), terms, mpi: Some((rank, library)) })
    }
    #[cfg(not(feature = "mpi"))]
    Err(StartError::NotBuilt { ranks })
}

/// The exit code of a program that panicked, as Rust has it.
#[cfg(feature = "mpi")]
const PANICKED: i32 = 101;

/// Makes a panic end the program: mpirun then ends the other ranks, which would wait for this one.
#[cfg(feature = "mpi")]
fn end_all_on_panic(rank: usize, terms: Arc<Mutex<Terms>>) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        // The thread that panicked may hold the lock.
        let advice = terms.try_lock().map_or(String::new(), |terms| terms.then_advice());
        eprintln!("lsoftmax: rank {rank} panicked, which is a defect of the program{advice}");
        std::process::exit(PANICKED);
    }));
}

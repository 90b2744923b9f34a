//! A rank of MPI.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferrompi::{Communicator as World, Mpi, MpiDatatype, Request, Source, ThreadLevel};
use lsoftmax_comm::Communicator;

use crate::StartError;
use crate::session::Terms;

/// Messages between two ranks arrive in the order in which they were sent, so that one tag serves all.
const TAG: i32 = 0;

/// The tag of the message that a rank has reported a failure, so that the others do not report that it has ended.
const REPORTED: i32 = 1;
/// How long it takes at most to send that.
const SENDING: Duration = Duration::from_millis(200);

/// How long a rank waits for messages without giving up its processor.
const SPIN: Duration = Duration::from_millis(2);
/// How long it then sleeps between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// The exit code of a failure that is not the user's.
const FAILED: u8 = 1;

/// How often it then looks whether the ranks on this machine are still there.
const LOOK: Duration = Duration::from_millis(200);

/// How much longer than rank 0 the others wait before they report that a rank does not answer.
const FIRST_REPORTS: Duration = Duration::from_secs(3);

/// How long a rank that is not to report a failure waits to be ended by the one that does.
const GRACE: Duration = Duration::from_secs(5);

/// The MPI library, shut down when this is dropped.
pub(crate) struct Library {
    _mpi: Mpi,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

/// Starts MPI for calls by this thread.
pub(crate) fn start(terms: Arc<Mutex<Terms>>) -> Result<(Library, MpiRank), StartError> {
    let failed = |error: ferrompi::Error| StartError::Mpi(error.to_string());
    let mpi = Mpi::init_thread(ThreadLevel::Funneled).map_err(failed)?;
    let world = mpi.world();
    let mut rank = MpiRank { world, terms, processes: Vec::new() };
    rank.processes = processes(&rank);
    Ok((Library { _mpi: mpi }, rank))
}

/// The process of every rank that is on this machine.
fn processes(rank: &MpiRank) -> Vec<Option<u32>> {
    let machine = rank.world.processor_name().unwrap_or_default();
    let mine = format!("{}\0{machine}", std::process::id());
    let all = rank.gather(mine.as_bytes()).into_iter().map(|one| {
        let text = String::from_utf8(one).ok()?;
        let (process, of) = text.split_once('\0')?;
        process.parse().ok().filter(|_| of == machine)
    });
    all.collect()
}

/// Whether a process of this machine has ended, as far as Linux says so.
fn has_ended(process: u32) -> bool {
    if !Path::new("/proc/self/stat").exists() {
        return false;
    }
    // The state follows the name, which is in parentheses.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let state = stat.map(|stat| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
    matches!(state, Err(_) | Ok(Some('Z' | 'X')))
}

pub(crate) struct MpiRank {
    world: World,
    terms: Arc<Mutex<Terms>>,
    /// The processes of the ranks on this machine.
    processes: Vec<Option<u32>>,
}

impl fmt::Debug for MpiRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.world.rank(), self.world.size())
    }
}

impl MpiRank {
    /// Sends and receives, from and to all ranks; empty messages are not sent.
    fn messages<T: MpiDatatype>(&self, send: &[&[T]], receive: &mut [&mut [T]]) {
        let rank = self.rank();
        receive[rank].copy_from_slice(send[rank]);
        let done = ferrompi::scope(|scope| {
            let (mut requests, mut partners) = (Vec::new(), Vec::new());
            for (from, out) in receive.iter_mut().enumerate() {
                if from != rank && !out.is_empty() {
                    requests.push(self.world.irecv(scope, out, from as i32, TAG)?);
                    partners.push(from);
                }
            }
            for (to, values) in send.iter().enumerate() {
                if to != rank && !values.is_empty() {
                    requests.push(self.world.isend(scope, values, to as i32, TAG)?);
                    partners.push(to);
                }
            }
            self.wait(&mut requests, &partners)
        });
        if let Err(error) = done {
            self.fail(&format!("the messages between the ranks failed: {error}"));
        }
    }

    /// Waits for all requests, or ends the program if one of them takes longer than the time limit.
    fn wait(&self, requests: &mut [Request<'_>], partners: &[usize]) -> ferrompi::Result<()> {
        let (mut waiting, mut looked) = (Instant::now(), Duration::ZERO);
        let mut last = Instant::now();
        loop {
            if !Request::test_some(requests)?.is_empty() {
                (waiting, looked) = (Instant::now(), Duration::ZERO);
            }
            if requests.iter().all(Request::is_completed) {
                return Ok(());
            }
            // A process that was stopped itself, and goes on, has not waited.
            let pause = last.elapsed();
            if pause > LOOK {
                waiting += pause;
            }
            last = Instant::now();
            let (time_limit, waited) = (self.terms().time_limit, waiting.elapsed());
            // Rank 0 waits for everyone; another rank may wait for one that waits.
            let patience = if self.rank() == 0 { Duration::ZERO } else { FIRST_REPORTS };
            let missing = || {
                let missing = requests.iter().zip(partners).filter(|(one, _)| !one.is_completed());
                let mut missing: Vec<usize> = missing.map(|(_, partner)| *partner).collect();
                missing.sort_unstable();
                missing.dedup();
                missing
            };
            if waited > time_limit + patience {
                self.lost(&missing(), &format!("not answered for {} s", time_limit.as_secs_f64()));
            }
            if waited > looked + LOOK {
                looked = waited;
                let ended = |rank: &usize| {
                    self.processes.get(*rank).copied().flatten().is_some_and(has_ended)
                };
                let ended: Vec<usize> = missing().into_iter().filter(ended).collect();
                if !ended.is_empty() {
                    if self.world.iprobe::<u8>(Source::Any, REPORTED)?.is_some() {
                        thread::sleep(GRACE);
                    }
                    self.lost(&ended, "ended before the run");
                }
            }
            if waited < SPIN { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
    }

    /// Ends the program because some ranks are missing. The first of the others says so.
    fn lost(&self, missing: &[usize], how: &str) -> ! {
        if (0..self.rank()).any(|rank| !missing.contains(&rank)) {
            thread::sleep(GRACE);
        }
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        let (ranks, have) = match names.len() {
            1 => ("rank", "has"),
            _ => ("ranks", "have"),
        };
        self.fail(&format!("{ranks} {} {have} {how}", names.join(", ")))
    }

    /// Ends all ranks, after a failure has been reported.
    pub fn abort(&self, code: u8) -> ! {
        let message = [1u8];
        let _: ferrompi::Result<()> = ferrompi::scope(|scope| {
            let others = (0..self.size()).filter(|rank| *rank != self.rank());
            let send = |to| self.world.isend(scope, &message, to as i32, REPORTED).ok();
            let mut requests: Vec<_> = others.filter_map(send).collect();
            let started = Instant::now();
            while started.elapsed() < SENDING && !requests.iter().all(Request::is_completed) {
                Request::test_some(&mut requests)?;
            }
            // A rank that is lost does not receive it; the scope would wait for that.
            self.world.abort(code.into())
        });
        self.world.abort(code.into())
    }

    fn terms(&self) -> std::sync::MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for MpiRank {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        self.messages(send, receive);
    }

    fn exchange_bytes(&self, send: &[&[u8]]) -> Vec<Vec<u8>> {
        let to: Vec<[u64; 1]> = send.iter().map(|bytes| [bytes.len() as u64]).collect();
        let mut from = vec![[0]; self.size()];
        let lengths: Vec<&[u64]> = to.iter().map(|one| one.as_slice()).collect();
        let mut receive: Vec<&mut [u64]> = from.iter_mut().map(|one| one.as_mut_slice()).collect();
        self.messages(&lengths, &mut receive);
        let mut all: Vec<Vec<u8>> = from.iter().map(|[len]| vec![0; *len as usize]).collect();
        let mut receive: Vec<&mut [u8]> = all.iter_mut().map(Vec::as_mut_slice).collect();
        self.messages(send, &mut receive);
        all
    }

    fn fail(&self, sentence: &str) -> ! {
        let advice = self.terms().then_advice();
        eprintln!("lsoftmax: {sentence}, says rank {}{advice}", self.rank());
        self.abort(FAILED)
    }
}

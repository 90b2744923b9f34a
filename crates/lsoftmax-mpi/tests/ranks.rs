//! Ranks of mpirun: sums, and what happens when one of them fails. Without mpirun, the tests say that they are skipped.
//!
//! A test starts this program again as the ranks, which run the test `as_a_rank` alone.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lsoftmax_comm::{Tree, fold, shares, sum};
use lsoftmax_mpi::start;

/// The environment variable that says what a rank is to do.
const TASK: &str = "LSOFTMAX_TEST_TASK";

const BLOCKS: usize = 13;
const LEN: usize = 10_007;

fn leaf(index: usize) -> Vec<f32> {
    (0..LEN).map(|i| ((index * 7919 + i * 104_729) % 1013) as f32 * 1.1e-3).collect()
}

fn nodes(range: &std::ops::Range<usize>) -> Vec<(u64, Vec<f32>)> {
    let tree = Tree { blocks: BLOCKS, sections: 1 };
    let leaves = tree.nodes(range, u32::MAX).into_iter();
    fold(leaves.map(|node| (node.id, leaf(node.leaves.start))), |left, right| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
    })
}

#[test]
fn as_a_rank() {
    let Ok(task) = std::env::var(TASK) else { return };
    let session = start(Duration::from_secs(2)).expect("MPI starts");
    session.set_advice("try again");
    let comm = session.comm().clone();
    match task.as_str() {
        "sum" => {
            let shares = shares(BLOCKS, comm.size());
            let ids = |range| nodes(range).into_iter().map(|(id, _)| id).collect();
            let ids: Vec<Vec<u64>> = shares.iter().map(ids).collect();
            let mine: Vec<f32> =
                nodes(&shares[comm.rank()]).into_iter().flat_map(|(_, sum)| sum).collect();
            let expected = nodes(&(0..BLOCKS)).swap_remove(0).1;
            assert!(sum(&*comm, &mine, LEN, &ids) == expected, "other bits");
            let long = comm.broadcast(vec![7; 3_000_000]);
            assert!(long.len() == 3_000_000 && long.iter().all(|byte| *byte == 7));
            assert!(comm.any(comm.rank() == comm.size() - 1) && !comm.any(false));
            println!("rank {} of {} is right", comm.rank(), comm.size());
        }
        "panic" if comm.rank() == 1 => panic!("as asked"),
        "exit" if comm.rank() == 1 => std::process::exit(3),
        "fail" if comm.rank() == 1 => comm.fail("it failed"),
        "sleep" if comm.rank() == 1 => std::thread::sleep(Duration::from_secs(20)),
        _ => {
            comm.any(false);
        }
    }
}

/// Runs the task on ranks; `None` without mpirun.
fn run(task: &str, ranks: usize) -> Option<(Output, Duration)> {
    let program = std::env::current_exe().expect("a path");
    let started = Instant::now();
    let output = Command::new("mpirun")
        .args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
        .arg(program)
        .args(["--exact", "as_a_rank", "--nocapture"])
        .env(TASK, task)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null())
        .output();
    if output.is_err() {
        eprintln!("skipped: mpirun is not installed");
    }
    Some((output.ok()?, started.elapsed()))
}

#[test]
fn ranks_add_with_the_bits_of_one_process() {
    for ranks in [2, 3, 4] {
        let Some((output, _)) = run("sum", ranks) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches("is right").count(), ranks, "{text}");
    }
}

#[test]
fn a_rank_that_panics_fails_exits_or_hangs_ends_all_within_seconds() {
    for (task, code, words) in [
        ("panic", 101, "rank 1 panicked, which is a defect of the program; try again"),
        ("fail", 1, "it failed, says rank 1; try again"),
        ("exit", 3, ""),
        ("sleep", 1, "rank 1 has not answered for 2 s, says rank 0; try again"),
    ] {
        let Some((output, time)) = run(task, 3) else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{task}: {text}");
        assert!(text.contains(words), "{task}: {text}");
        assert!(time < Duration::from_secs(10), "{task}: {time:?}");
    }
}

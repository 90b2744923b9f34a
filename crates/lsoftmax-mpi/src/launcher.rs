//! How a launcher tells a program which rank it is.

use std::env;

/// Rank and number of ranks, by the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The number of this rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The number of ranks on this machine, as far as it is known.
    pub local: usize,
}

impl Launch {
    const ALONE: Self = Self { rank: 0, size: 1, local: 1 };
}

/// The variables of Open MPI's mpirun, of MPICH's and Intel's, and of Slurm's srun with PMIx.
const VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
];

/// The variables with the number of ranks on this machine, of Open MPI and of MPICH.
const LOCAL: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// What the launcher says; one rank if there is none.
pub fn launch() -> Launch {
    from_variables(|name| env::var(name).ok())
}

fn from_variables(value: impl Fn(&str) -> Option<String>) -> Launch {
    let number = |name| value(name)?.parse::<usize>().ok();
    let found = VARIABLES.iter().find_map(|(rank, size)| {
        let local = LOCAL.into_iter().find_map(number).unwrap_or(1);
        Some(Launch { rank: number(rank)?, size: number(size)?, local })
    });
    found.unwrap_or(Launch::ALONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_launcher_is_recognised_and_a_batch_script_of_slurm_is_not() {
        let found = |variables: &[(&str, &str)]| {
            from_variables(|name| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let four = |rank| Launch { rank, size: 4, local: 1 };
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(found(&open_mpi), four(3));
        let two_here = [&open_mpi[..], &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]].concat();
        assert_eq!(found(&two_here), Launch { local: 2, ..four(3) });
        assert_eq!(found(&[("PMI_SIZE", "4"), ("PMI_RANK", "0")]), four(0));
        assert_eq!(found(&[("PMIX_RANK", "1"), ("SLURM_STEP_NUM_TASKS", "4")]), four(1));
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Launch::ALONE);
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "many")]), Launch::ALONE);
        assert_eq!(found(&[]), Launch::ALONE);
    }
}

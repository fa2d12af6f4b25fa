"""Rank, number of ranks and local rank, by what the launchers of parallel jobs leave in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.standins import Standins, standins, traces

__all__ = ["standins", "traces"]  # fixtures

TORCHRUN = {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_RANK": "5",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0"}
FLUX = {"FLUX_TASK_RANK": "7", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "3"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_LOCALID": "0"}

CASES = {
    "none": ({}, ()),
    "torchrun": (TORCHRUN, (11, 16, 3)),
    "open mpi": (OPEN_MPI, (5, 6, 1)),
    "hydra": (HYDRA, (2, 4, 0)),
    "pmix has no size": ({"PMIX_RANK": "9"}, (9,)),
    "flux": (FLUX, (7, 8, 3)),
    "slurm": (SLURM, (1, 2, 1)),
    "a step smaller than its job": ({**SLURM, "SLURM_STEP_NUM_TASKS": "3"}, (1, 3, 1)),
    "torchrun in a step of slurm": (SLURM | TORCHRUN, (11, 16, 3)),
    "mpirun in a batch script": (BATCH | OPEN_MPI, (5, 6, 1)),
    "prterun in a batch script": (BATCH | {"PMIX_RANK": "9"}, (9,)),
    "flux in slurm": (BATCH | FLUX, (7, 8, 3)),
    "torchrun by mpirun": (OPEN_MPI | TORCHRUN, (11, 16, 3)),
    "somebody's own RANK": (OPEN_MPI | {"RANK": "0"}, (5, 6, 1)),
    "RANK by hand": ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
    "RANK alone": ({"RANK": "3"}, (3,)),
    "no number": ({"RANK": "first", "PMI_RANK": "-1", "FLUX_TASK_RANK": "0x7", "SLURM_PROCID": ""}, ()),
    "a blank": ({"PMI_RANK": " 1", "PMIX_RANK": "1 "}, ()),
    "huge": ({"PMI_RANK": "9" * 5000, "SLURM_PROCID": "4294967296", "PMIX_RANK": "1000000000"}, ()),
    "as large as it goes": ({"PMIX_RANK": "999999999"}, (999999999,)),
    "not below its size": ({"PMI_RANK": "4", "PMI_SIZE": "4", "SLURM_PROCID": "1"}, (1,)),
    "a size that is none": ({"PMI_RANK": "4", "PMI_SIZE": "many", "MPI_LOCALRANKID": "x"}, (4,)),
    "zeros before": ({"PMI_RANK": "007", "PMI_SIZE": "08"}, (7, 8)),
}


@pytest.mark.parametrize("case", CASES)
def test_rank(standins: Standins, traces: Path, case: str) -> None:
    env, expected = CASES[case]
    facts = standins.run(traces, "linked", "linked", env=env).trace.facts
    found = {name: facts.all[name] for name in ("rank", "ranks", "rank.local") if name in facts.all}
    assert found == dict(zip(("rank", "ranks", "rank.local"), map(str, expected), strict=False))
    assert facts.rank == (expected[0] if expected else None)

/* Which of the processes of one job this is, by what its launcher left in the environment.
 *
 * Launchers nest: torchrun in a step of SLURM, mpirun in a job of SLURM's batch script. The innermost
 * one numbers the processes, so the order below is from the inside out:
 *   torchrun          all three of its variables, since RANK alone is a name that anybody may use
 *   Open MPI          mpirun sets PMIX_RANK too, and has the size
 *   MPICH, Intel MPI  Hydra; also `srun --mpi=pmi2` and Flux, with the same numbers as their own
 *   PMIx              prterun, `srun --mpi=pmix`: it has no variable for the size
 *   Flux              often inside a job of SLURM
 *   SLURM             a batch script has SLURM_PROCID=0 as well: it is last of the launchers
 *   RANK              set by hand, or by a launcher that imitates torchrun
 * Size and local rank are of the launcher that gave the rank, never another's. What is no number of at
 * most nine digits, or no rank below its size, is as good as not set. */
#include "internal.h"

#include <stdlib.h>

static const struct launcher {
    const char *rank, *size, *other_size, *local;
    bool all; /* counts only with size and local rank */
} launchers[] = {
    {"RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", true},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_RANK", false},
    {"PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID", false},
    {"PMIX_RANK", NULL, NULL, NULL, false},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", NULL, "FLUX_TASK_LOCAL_ID", false},
    /* the step's own size: a step may be smaller than the job */
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID", false},
    {"RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", false},
};

/* -1: not set, or no number. */
static int number(const char *name) {
    const char *text = name ? getenv(name) : NULL;
    int value = 0, digits = 0;
    for (; text && text[digits] >= '0' && text[digits] <= '9' && digits < 10; digits++)
        value = digits < 9 ? value * 10 + (text[digits] - '0') : value;
    return digits == 0 || digits > 9 || text[digits] ? -1 : value;
}

struct kdb_rank kdb_find_rank(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *by = &launchers[i];
        struct kdb_rank found = {number(by->rank), number(by->size), number(by->local)};
        if (found.size < 0)
            found.size = number(by->other_size);
        if (found.rank >= 0 && (found.size < 0 ? !by->all : found.rank < found.size) &&
            (found.local >= 0 || !by->all))
            return found;
    }
    return (struct kdb_rank){-1, -1, -1};
}

#!/bin/bash
# One search by the tasks of a Slurm job array, without a Ray cluster:
#   sbatch --array=1-16 slurm-array.sh search ls --dataset cifar10 --data-root /shared/data \
#       --out /shared/runs/ls --store /shared/store --trials 200 --gpus 1
# Every path must be on a file system shared by all nodes. Tasks may start, end and be requeued at any
# time; the same command, submitted again with as many tasks, runs the trials that are missing.
#SBATCH --job-name=tune-calib
#SBATCH --ntasks=1
# A core for training and one for the driver, which any of the tasks may be.
#SBATCH --cpus-per-task=2
#SBATCH --gpus=1
#SBATCH --time=24:00:00
#SBATCH --requeue
# Two minutes before the end, a task gives its trial back to the others.
#SBATCH --signal=B:TERM@120
set -euo pipefail

# Edit this line: activate the environment in which tune-calib is installed on every node.
#   source /shared/venv/bin/activate
command -v tune-calib >/dev/null || { echo "tune-calib is not in PATH: edit the line that activates the environment in slurm-array.sh" >&2; exit 2; }

# In place of this shell, so that it gets Slurm's signal.
exec tune-calib "$@" --worker --at-once "${SLURM_ARRAY_TASK_COUNT:-1}"

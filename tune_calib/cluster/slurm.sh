#!/bin/bash
# A Ray cluster inside one Slurm job, and tune-calib on it:
#   sbatch slurm.sh ablate mac_cal --dataset cifar10 --data-root /shared/data \
#       --out /shared/runs/mac_cal --store /shared/store --gpus 0.25
# Every path must be on a file system shared by all nodes. A job that is requeued or submitted again
# runs the trials that are missing.
#SBATCH --job-name=tune-calib
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
# The driver gets the signal two minutes before the end and stops after the current epoch.
#SBATCH --signal=B:TERM@120
set -euo pipefail

# No other user of these nodes may use the cluster; srun passes both variables on to every node.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
export RAY_AUTH_TOKEN

cpus=${SLURM_CPUS_PER_TASK:-1}
gpus=${SLURM_GPUS_ON_NODE:-0}
port=$((20000 + SLURM_JOB_ID % 20000))
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
on_head=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head")
ip=$("${on_head[@]}" python -c "import ray; print(ray.util.get_node_ip_address())")

# Trials that share a GPU (--gpus 1/k) run concurrently on it with MPS, and take turns without it.
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-$SLURM_JOB_ID
export CUDA_MPS_LOG_DIRECTORY=/tmp/mps-$SLURM_JOB_ID
start_mps='if [ "$0" != 0 ] && command -v nvidia-cuda-mps-control >/dev/null; then
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"; nvidia-cuda-mps-control -d; fi; exec "$@"'

"${on_head[@]}" bash -c "$start_mps" "$gpus" ray start --block --head --node-ip-address="$ip" --port="$port" \
    --num-cpus="$cpus" --num-gpus="$gpus" --include-dashboard=false &
until ray health-check --address="$ip:$port" >/dev/null 2>&1; do sleep 1; done

if ((${#nodes[@]} > 1)); then
    others=$((${#nodes[@]} - 1))
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
        bash -c "$start_mps" "$gpus" ray start --block --address="$ip:$port" --num-cpus="$cpus" --num-gpus="$gpus" &
fi

tune-calib "$@" --address "$ip:$port" &
driver=$!
trap 'kill -TERM $driver' TERM INT
status=0
wait $driver || status=$?
# A trap ends the first wait; the second one returns the driver's exit code.
wait $driver || status=$?
exit $status

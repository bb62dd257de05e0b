#!/bin/bash
# A Ray cluster inside one Slurm job, and tune-calib on it:
#   sbatch slurm.sh ablate mac_cal --dataset cifar10 --data-root /shared/data \
#       --out /shared/runs/mac_cal --store /shared/store --gpus 0.25
# Every path must be on a file system shared by all nodes. A job that is requeued or submitted again,
# also with the command that it printed, runs the trials that are missing.
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

# Edit this line: activate the environment in which tune-calib is installed on every node. srun passes
# it on to the other nodes.
#   source /shared/venv/bin/activate
for name in tune-calib ray python; do
    command -v "$name" >/dev/null || { echo "$name is not in PATH: edit the line that activates the environment in slurm.sh" >&2; exit 2; }
done

# No other user of these nodes may use the cluster; srun passes both variables on to every node.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
export RAY_AUTH_TOKEN

cpus=${SLURM_CPUS_PER_TASK:-1}
gpus=${SLURM_GPUS_ON_NODE:-0}
# Outside of the ports of Ray's workers (10002 to 19999), and of those that Linux assigns (from 32768).
port=$((20000 + SLURM_JOB_ID % 12000))
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
on_head=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head")
ip=$("${on_head[@]}" python -c "import ray; print(ray.util.get_node_ip_address())")

# What trainings with network.execution=auto use of this kind of GPU, for the log of the job.
[[ $gpus == 0 ]] || "${on_head[@]}" tune-calib check-gpu || true

# Trials that share a GPU (--gpus 1/k) run concurrently on it with MPS, and take turns without it.
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-$SLURM_JOB_ID
export CUDA_MPS_LOG_DIRECTORY=/tmp/mps-$SLURM_JOB_ID
start_mps='if [ "$0" != 0 ] && command -v nvidia-cuda-mps-control >/dev/null; then
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"; nvidia-cuda-mps-control -d; fi; exec "$@"'

"${on_head[@]}" bash -c "$start_mps" "$gpus" ray start --block --head --node-ip-address="$ip" --port="$port" \
    --num-cpus="$cpus" --num-gpus="$gpus" --include-dashboard=false &
wait_s=${TUNE_CALIB_WAIT_S:-300}
until ray health-check --address="$ip:$port" >/dev/null 2>&1; do
    ((SECONDS < wait_s)) || { echo "the head node $head did not start Ray within $wait_s s" >&2; exit 1; }
    sleep 1
done

if ((${#nodes[@]} > 1)); then
    others=$((${#nodes[@]} - 1))
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
        bash -c "$start_mps" "$gpus" ray start --block --address="$ip:$port" --num-cpus="$cpus" --num-gpus="$gpus" &
    # Nodes that have joined are named by their IP addresses, as Ray knows them.
    missing=$(python - "$ip:$port" "$wait_s" "${nodes[@]}" <<'END'
import socket, sys, time
import ray
address, wait_s, *names = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
deadline = time.monotonic() + float(wait_s)
while True:
    alive = [node for node in ray.nodes() if node["Alive"]]
    if len(alive) >= len(names):
        break
    if time.monotonic() > deadline:
        known = {node["NodeManagerHostname"].partition(".")[0] for node in alive}
        known |= {node["NodeManagerAddress"] for node in alive}
        print(*(name for name in names if name.partition(".")[0] not in known))
        break
    time.sleep(1)
END
    )
    [[ -z $missing ]] || { echo "these nodes did not join the Ray cluster within $wait_s s: $missing" >&2; exit 1; }
fi

# A command that an earlier job printed names the cluster of that job.
words=()
while (($#)); do
    if [[ $1 == --address ]]; then shift; else words+=("$1"); fi
    shift
done
tune-calib "${words[@]}" --address "$ip:$port" &
driver=$!
trap 'kill -TERM $driver' TERM INT
status=0
wait $driver || status=$?
# A trap ends the first wait; the second one returns the driver's exit code.
wait $driver || status=$?
exit $status

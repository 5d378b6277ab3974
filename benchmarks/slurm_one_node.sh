#!/bin/bash
# A SLURM of one node, in a folder of its own, that runs two notebooks on two workers: do `--executor slurm` and the
# scripts of deploy/ work?
#
#     apt-get install --no-install-recommends slurmctld slurmd slurm-client munge     # Debian, Ubuntu
#     bash benchmarks/slurm_one_node.sh [NOTEBOOK...]                                 # as root; default 03 07
#
# Nothing of the system is changed: configuration, keys, state and logs are in a temporary folder, and the daemons end
# with the script. Exit status 77: SLURM is not installed, or this is not root.
set -eu
for command in slurmctld slurmd srun sinfo munged mungekey; do
  command -v "$command" > /dev/null || { echo "$command is not installed: skipped"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "the daemons want root: skipped"; exit 77; }
repository=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
host=$(hostname -s)
cores=4 # of the node, whatever the machine has: a head and its workers run at once
daemons=()
finish() {
  for pid in "${daemons[@]}"; do kill "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  rm -rf "$work"
}
trap finish EXIT

mkdir -p "$work"/{munge,state,spool,log,jobs}
chmod 755 "$work" "$work/munge"
mungekey --create --keyfile="$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
  --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" 2> "$work/log/munged" &
daemons+=($!)

cat > "$work/slurm.conf" << CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
slurmctld -D > "$work/log/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D > "$work/log/slurmd.out" 2>&1 &
daemons+=($!)
for _ in $(seq 60); do
  [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && break
  sleep 1
done
srun -n1 hostname || { tail -n 20 "$work"/log/*; exit 1; }

# what a user would write into ~/.config/dask/jobqueue.yaml
export DASK_CONFIG=$work/dask
mkdir -p "$DASK_CONFIG"
cat > "$DASK_CONFIG/jobqueue.yaml" << YAML
jobqueue:
  slurm:
    cores: 1
    memory: 1GB
    walltime: "02:00:00"
    log-directory: $work/jobs
    # the first job ends before its worker is there, and is replaced
    job-script-prologue: ["mkdir $work/first 2> /dev/null && exit 1"]
YAML
export OMP_NUM_THREADS=1
python=${PYTHON:-python}
[ $# -gt 0 ] || set -- 03 07
cd "$repository"
by_slurm() {
  "$python" -m xlingual_nb run "$@" --store "$work/slurm-runs" --executor slurm --workers 2 || { tail -n 20 "$work"/jobs/*; exit 1; }
}
by_slurm "$@"
by_slurm "$@" --on-workers  # the notebooks too, on the runs that are there
"$python" -m xlingual_nb run "$@" --store "$work/local-runs" --executor processes --workers 2

# the scripts of deploy/, in a folder that has an environment; only what they ask SLURM for is made smaller
mkdir "$work/folder"
cd "$work/folder"
ln -s "$("$python" -c 'import sys; print(sys.prefix)')" .venv
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH}
small=(--cpus-per-task=1 --mem=1G)
"$python" -m dask scheduler --host 127.0.0.1 --port 16819 --no-dashboard > "$work/log/scheduler" 2>&1 &
daemons+=($!)
job=$(sbatch --parsable "${small[@]}" --array=0-1 --gres=none --output="$work/jobs/array-%a.out" \
  "$repository/deploy/slurm_workers.sbatch" tcp://127.0.0.1:16819)
"$python" -m xlingual_nb run "$1" --store "$work/array-runs" --executor dask --address tcp://127.0.0.1:16819 &
study=$!
for _ in $(seq 120); do
  [ "$(find "$work/array-runs" -name manifest.json 2> /dev/null | wc -l)" -ge 10 ] && break
  sleep 1
done
scontrol requeue "${job}_0" && echo "one of the two workers is preempted"
wait "$study" || { tail -n 20 "$work"/jobs/*; exit 1; }
scancel "$job"
sed 's/--scale gpu -p device=cuda/--scale smoke/; s/--workers 8/--workers 1/' "$repository/deploy/slurm_head.sbatch" > head.sbatch
sbatch --wait "${small[@]}" --output="$work/jobs/head.out" head.sbatch "$1" --store "$work/head-runs" ||
  { tail -n 20 "$work"/jobs/*; exit 1; }
tail -n 1 "$work/jobs/head.out"

cd "$repository"
"$python" - "$work"/{local,slurm,array,head}-runs << 'PY'
import sys
sys.path.insert(0, "benchmarks")
from cluster import products
from xlingual_nb.runs.store import Store
local, slurm, array, head = [products(Store(path)) for path in sys.argv[1:]]
same = slurm == local and array == head and array.items() <= local.items()
print(f"{len(local)} runs by processes, {len(slurm)} by SLURM; of the first notebook {len(array)} by the array of workers")
print(f"and {len(head)} by the job of the head; same bytes: {same}")
sys.exit(not same)
PY

#!/bin/sh
# dask-jobqueue 0.9.0 with distributed 2026.8.0 and dask 2026.8.0 (CPython 3.11, Linux).
#
# Behaviour: a job that a batch system preempts and puts back into its queue (SLURM's --requeue) is cancelled by
# the cluster that asked for it. SpecCluster closes a worker that has been away for distributed.deploy.
# lost-worker-timeout (15 s), which for a job means `scancel`, and no other job is asked for: a cluster scaled to
# one job stays at none, although `worker_spec` has one, until `scale` is called again. With
# `adapt(minimum_jobs=n, maximum_jobs=n)` it asks for another by itself.
#
# Seen on SLURM 22.05, two jobs: after `scontrol requeue` both were pending 8 s later and out of the queue 17 s later;
# with `adapt` two new ones ran after 33 s. After `scancel` of both, without `adapt`, none was asked for in 97 s.
# Here `sbatch` and `scancel` are scripts that write down their calls, and the time is 2 s: `scancel` is called with
# the job's number, `sbatch` is called once; a second time after `scale`.
#
# Fails if the requeued job is left in the queue, or another is asked for without `scale`.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check dask==2026.8.0 distributed==2026.8.0 dask-jobqueue==0.9.0
mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<'SH'
#!/bin/sh
script=$(cat "$1")
setsid sh -c "$script" > /dev/null 2>&1 &
echo "sbatch" >> calls
echo "Submitted batch job $!"
SH
cat > "$folder/bin/scancel" <<'SH'
#!/bin/sh
echo "scancel $1" >> calls
SH
chmod +x "$folder/bin/sbatch" "$folder/bin/scancel"
cd "$folder"
PATH="$folder/bin:$PATH" "$folder/venv/bin/python" - <<'PY'
import os
import signal
import sys
import time
from pathlib import Path

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client


def calls():
    return Path("calls").read_text().splitlines()


def job_ids(cluster):
    return [job.job_id for job in cluster.workers.values()]


def wait(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.2)
    return condition()


dask.config.set({"distributed.deploy.lost-worker-timeout": "2s"})
cluster = SLURMCluster(cores=1, memory="1GB", scheduler_options=dict(dashboard_address=":0"))
cluster.scale(jobs=1)
with Client(cluster) as client:
    client.wait_for_workers(1, timeout=60)
    (number,) = job_ids(cluster)
    os.killpg(int(number), signal.SIGTERM)  # as preemption does; the job waits in the queue again
    is_cancelled = wait(lambda: f"scancel {number}" in calls())
    time.sleep(10)
    is_asked_for_again = calls().count("sbatch") > 1
    print("cancelled:", is_cancelled, "- planned:", len(cluster.worker_spec), "- asked for again:", is_asked_for_again)
    cluster.scale(jobs=1)
    is_asked_after_scale = wait(lambda: calls().count("sbatch") == 2)
    print("asked for again after scale:", is_asked_after_scale)
    for number in job_ids(cluster):
        os.killpg(int(number), signal.SIGTERM)
cluster.close()
sys.exit(not (is_cancelled and not is_asked_for_again and is_asked_after_scale))
PY

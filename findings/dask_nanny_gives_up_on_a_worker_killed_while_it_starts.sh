#!/bin/sh
# distributed 2026.8.0 with dask 2026.8.0 (CPython 3.11, Linux).
#
# Behaviour: the nanny of `dask worker` starts its worker process again when that is killed, but only once it
# has registered. A worker process that is killed while it starts (out of memory on a full node, say) takes
# its nanny along: "Nanny failed to start", and `dask worker` ends with exit status 1, although a second
# attempt would succeed. Whoever keeps workers alive needs something above the nanny, a batch system's
# --requeue or a supervisor, and a client that counts on workers must bear that none is left.
#
# Seen: killed by signal 9 in its preload at the first start, when a second start would get past it: exit
# status 1 after some seconds. Killed after it had registered: a worker is there again, under a new address.
#
# Fails if the worker that was killed while starting is started again, or the other is not.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check dask==2026.8.0 distributed==2026.8.0
cat > "$folder/kill_at_first_start.py" <<'PY'
import os
import signal
from pathlib import Path


def dask_setup(worker):
    mark = Path(os.environ["MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
PY
cd "$folder"
MARK="$folder/mark" "$folder/venv/bin/python" - <<'PY'
import os
import signal
import subprocess
import sys
import time

from distributed import Client, LocalCluster


def workers(client):
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def wait(condition, seconds=90):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True


def start(address, *more):
    command = [sys.executable, "-m", "dask", "worker", address, "--nthreads", "1", "--no-dashboard", *more]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    with LocalCluster(n_workers=0, dashboard_address=None) as cluster, Client(cluster) as client:
        address = cluster.scheduler_address
        early = start(address, "--preload", "kill_at_first_start.py")
        gave_up = wait(lambda: early.poll() is not None) and early.returncode == 1
        print("killed while it starts: exit status", early.poll(), "- mark left:", os.path.exists("mark"))
        late = start(address)
        assert wait(lambda: len(workers(client)) == 1)
        (first,) = workers(client)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        is_back = wait(lambda: workers(client) and first not in workers(client))
        print("killed after it has registered: there again:", is_back)
        for process in (early, late):
            process.terminate()
            process.wait()
    sys.exit(not (gave_up and is_back))
PY

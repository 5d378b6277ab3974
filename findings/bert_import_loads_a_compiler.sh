#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 and scipy 1.17.1 on a CPU (CPython 3.11, Linux).
#
# Behaviour: the class BertModel needs none of these, and its import loads all: torch._dynamo (for flash attention, by
# way of the cache of continuous batching), sympy (for sharded loading, by way of torch.distributed.tensor), and
# scipy.optimize (for the loss of object detection, by way of modeling_utils). The weights of a small encoder take less
# memory than that, so where one process a core opens a model each, most of their memory is this.
#
# Seen: after `import torch` and `import transformers`, importing BertModel loads 1,437 modules more and 107 MB; all
# three packages are among them, and none was there before.
#
# Fails if one of the three is no longer loaded, or the import takes less than 50 MB.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.23.0 scipy==1.17.1
"$folder/venv/bin/python" - <<'PY'
import sys
from pathlib import Path

import torch
import transformers

PACKAGES = ("torch._dynamo", "sympy", "scipy.optimize")


def memory():
    """Megabytes of this process's own memory."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


modules, megabytes = set(sys.modules), memory()
transformers.BertModel
loaded = set(sys.modules) - modules
grown = memory() - megabytes
print(f"{len(loaded)} modules more, {grown:.0f} MB:", *(name for name in PACKAGES if name in loaded))
sys.exit(grown < 50 or not loaded.issuperset(PACKAGES))
PY

"""One thread, no network, no windows: set before anything heavy is imported."""
import os

for name, value in dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                        MPLBACKEND="Agg", HF_HUB_DISABLE_TELEMETRY="1").items():
    os.environ.setdefault(name, value)

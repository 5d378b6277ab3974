#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 on a CPU (CPython 3.11).
#
# Behaviour: BigBird with `attention_type="block_sparse"` reads a text that is too short for its blocks with full
# attention, and stays with full attention for good: the switch is made in the model, not for the call. The states
# of a long text then depend on whether the same process has read a short one before. `model.config` still says
# block_sparse.
#
# Seen: a text of 384 tokens twice: equal. With a text of 8 tokens in between: states of size 1.0 move by .53.
#
# Fails if the long text has the same states before and after.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.23.0
"$folder/venv/bin/python" - <<'PY'
import sys

import torch
import transformers

torch.manual_seed(0)
config = transformers.BigBirdConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=512,
    attention_type="block_sparse",
    block_size=16,
    num_random_blocks=1,
)
model = transformers.BigBirdModel(config).eval()
long, short = torch.randint(5, 50, (1, 384)), torch.randint(5, 50, (1, 8))
with torch.no_grad():
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(0, 0.3)
    first = model(long).last_hidden_state
    again = model(long).last_hidden_state
    model(short)
    after = model(long).last_hidden_state
repeated, moved = (float((first - other).abs().max()) for other in (again, after))
print(f"read twice: moved by {repeated:.2f}; after a short text: by {moved:.2f}")
print(f"model.attention_type {model.attention_type}, config {model.config.attention_type}")
sys.exit(repeated > 1e-4 or moved < 0.01)
PY

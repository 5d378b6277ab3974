#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 on a CPU (CPython 3.11).
#
# Behaviour: Nyströmformer's landmarks are means of `segment_means_seq_len / num_landmarks` tokens, cut by a reshape
# whose first dimension is -1. Inputs of `segment_means_seq_len` tokens are right. Of another length most batches
# raise an error about shapes; but where two sentences together have the tokens of one, they pass: the landmarks of
# the first are then means over tokens of both, and the states of a sentence depend on what the other one says.
# (The released checkpoints have as many landmarks as segments and take another path.)
#
# Seen: two sentences of 8 tokens, with segments of 16 and 4 landmarks: another second sentence moves the first one's
# states by .52 where the states are 1.0. One sentence of 8 tokens alone raises RuntimeError.
#
# Fails if the batch is refused too, or the first sentence no longer depends on the second.
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
config = transformers.NystromformerConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    num_landmarks=4,
    segment_means_seq_len=16,
)
model = transformers.NystromformerModel(config).eval()
with torch.no_grad():
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(0, 0.3)
    first, second, other = torch.randint(5, 50, (3, 8))
    one = model(torch.stack([first, second])).last_hidden_state[0]
    two = model(torch.stack([first, other])).last_hidden_state[0]
    try:
        model(first[None])
        alone = "is read"
    except RuntimeError as error:
        alone = f"raises RuntimeError: {error}"
moved = float((one - two).abs().max())
print(f"another second sentence moves the first by {moved:.2f} (states {float(one.std()):.2f})")
print(f"the first sentence alone {alone}")
sys.exit(moved < 0.01 or alone == "is read")
PY

#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 on a CPU (CPython 3.11).
#
# Behaviour: `position_embedding_type` of a BERT's config.json, `relative_key` or `relative_key_query`, asked older
# transformers for learned distances (Shaw et al. 2018; Huang et al. 2020) in the attention scores in place of absolute
# positions, and models of that kind have been released. transformers 5 has no code for it. Such a folder opens without
# an error: its distances are left out, and absolute positions are added that it was not trained with. The setting is
# kept in `model.config` as it was.
#
# Seen: states are equal to the bit whatever config.json says. The loading report has the tables of distances among the
# unexpected weights, "can be ignored when loading from different task/architecture".
#
# Fails if the setting changes a state, or is refused.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.23.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=32,
)
transformers.BertModel(config).save_pretrained("model")
weights = load_file("model/model.safetensors")
for layer in range(2):
    name = f"encoder.layer.{layer}.attention.self.distance_embedding.weight"
    weights[name] = torch.randn(63, 8)
save_file(weights, "model/model.safetensors", {"format": "pt"})
path = Path("model/config.json")
ids = torch.randint(5, 50, (1, 12))
states = {}
for kind in ("absolute", "relative_key", "relative_key_query"):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"position_embedding_type": kind}))
    model, report = transformers.BertModel.from_pretrained("model", output_loading_info=True)
    with torch.no_grad():
        states[kind] = model.eval()(ids).last_hidden_state
    print(f"{kind}: config says {model.config.position_embedding_type}, not used", end=" ")
    print(sorted(report["unexpected_keys"])[:1])
moved = [float((states["absolute"] - other).abs().max()) for other in states.values()]
print("states move by", moved)
sys.exit(max(moved) > 0)
PY

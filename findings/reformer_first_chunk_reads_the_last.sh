#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 on a CPU (CPython 3.11).
#
# Behaviour: Reformer's local attention lets a chunk of `local_attn_chunk_length` tokens read the one before it. The
# chunks are shifted in a circle, so that the first one reads the last. A text of 70 tokens is two chunks of 64: its
# first tokens read its last six. Padded to 200, as beside a longer text, the same text is four chunks; the first now
# reads padding, which is masked. So its states depend on what else is in the batch, although all padding is masked.
# Texts of one chunk are not affected, nor is a model with `local_num_chunks_before=0`.
#
# Seen: states of 70 tokens differ by 1.8 between alone and padded to 200, where the states are 1.0; by less than
# 1e-5 for 60 tokens, and for 70 where no chunk before is read.
#
# Fails if the 70 tokens come out the same, or the two others do not.
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


def largest_change(tokens, chunks_before):
    """Largest difference of a text's states, alone and padded to 200 tokens."""
    torch.manual_seed(0)
    config = transformers.ReformerConfig(
        vocab_size=50,
        hidden_size=32,
        num_attention_heads=2,
        attention_head_size=16,
        feed_forward_size=64,
        attn_layers=["local", "local"],
        is_decoder=False,
        axial_pos_embds=False,
        max_position_embeddings=256,
        local_attn_chunk_length=64,
        local_num_chunks_before=chunks_before,
    )
    model = transformers.ReformerModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
        text = torch.randint(5, 50, (1, tokens))
        padded = torch.nn.functional.pad(text, (0, 200 - tokens))
        mask = (torch.arange(200) < tokens).long()[None]
        alone = model(text).last_hidden_state[0]
        beside = model(padded, attention_mask=mask).last_hidden_state[0, :tokens]
    return float((alone - beside).abs().max())


changes = {case: largest_change(*case) for case in ((60, 1), (70, 0), (70, 1))}
for (tokens, chunks), change in changes.items():
    print(f"{tokens} tokens, {chunks} chunks before: {change:.1e}")
sys.exit(changes[70, 1] < 0.01 or changes[60, 1] > 1e-4 or changes[70, 0] > 1e-4)
PY

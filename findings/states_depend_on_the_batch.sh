#!/bin/sh
# transformers 5.23.0 with torch 2.13.0 on a CPU (CPython 3.11).
#
# Behaviour: five families of encoders give the tokens of a sentence other states when a longer sentence stands beside
# it in the batch, although the attention mask marks the padding. FNet's forward takes `attention_mask` and drops it
# without a word: its Fourier transform runs over the padding. ConvBERT, Nyströmformer and YOSO convolve over the
# states of the padding (YOSO: over what its attention makes of it), MobileBERT joins each token's embedding with its
# neighbour's, and the last token's neighbour is [PAD] in a batch and zeros alone. At the spread of freshly
# initialised weights (.02) most of it is too small to be seen; here weights have that of trained ones.
#
# Seen (change of a state as a share of its length, the largest over tokens and layers): Nyströmformer 1.7, FNet 1.6,
# MobileBERT .96, YOSO .42, ConvBERT .14; BERT beside them 6e-7.
#
# Fails if one of the five no longer depends on the batch, or BERT does.
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

SIZES = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=48,
    pad_token_id=0,
)
FAMILIES = {
    "bert": {},
    "fnet": {},
    "convbert": dict(embedding_size=16),
    "nystromformer": dict(num_landmarks=8, segment_means_seq_len=8),
    "yoso": {},
    "mobilebert": dict(embedding_size=8, intra_bottleneck_size=16, true_hidden_size=16),
}


def change(model_type):
    """Largest change of a state beside a longer sentence, as a share of its length."""
    config = transformers.AutoConfig.for_model(model_type, **SIZES | FAMILIES[model_type])
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
    short, long = torch.arange(5, 12), torch.arange(12, 36)
    ids = torch.zeros(2, 24, dtype=torch.long)
    ids[0, :7], ids[1] = short, long
    with torch.no_grad():
        alone = model(short[None], attention_mask=torch.ones(1, 7), output_hidden_states=True)
        batch = model(ids, attention_mask=(ids > 0).long(), output_hidden_states=True)
    changes = []
    for one, two in zip(alone.hidden_states, batch.hidden_states):
        difference = (one[0] - two[0, :7]).norm(dim=1) / one[0].norm(dim=1)
        changes.append(float(difference.max()))
    return max(changes)


changes = {model_type: change(model_type) for model_type in FAMILIES}
for model_type, value in changes.items():
    print(f"{model_type}: {value:.2g}")
is_clean = changes.pop("bert") < 1e-4
sys.exit(not is_clean or min(changes.values()) < 1e-2)
PY

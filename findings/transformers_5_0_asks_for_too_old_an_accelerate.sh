#!/bin/sh
# transformers 5.0.0 with accelerate 1.1.0 and torch 2.6.0 (CPython 3.11).
#
# Behaviour: transformers 5.0.0 declares accelerate>=1.1.0 for its extra `torch`, but where accelerate is installed,
# importing any of its PyTorch models imports `get_module_size_with_ties` from accelerate.utils.modeling, which
# accelerate has from 1.2.0 on. With 1.1.0, the oldest that is allowed, no model can be imported; without accelerate, or
# with 1.2.0, it can. Met where a resolver chose the oldest versions that are allowed.
#
# Seen: ImportError: cannot import name 'get_module_size_with_ties' from 'accelerate.utils.modeling'.
#
# Fails if a model can be imported with 1.1.0, or cannot be loaded with 1.2.0.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    torch==2.6.0 numpy==2.0.0 transformers==5.0.0 accelerate==1.1.0
cat > "$folder/load.py" <<'PY'
import sys

try:
    from transformers import BertConfig, BertForMaskedLM
except ImportError as error:
    print(f"ImportError: {error}")
    sys.exit()
tiny = BertConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
BertForMaskedLM(tiny).save_pretrained(sys.argv[1])
BertForMaskedLM.from_pretrained(sys.argv[1])
print("loaded")
PY
old=$("$folder/venv/bin/python" "$folder/load.py" "$folder/model" 2>/dev/null)
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps accelerate==1.2.0
new=$("$folder/venv/bin/python" "$folder/load.py" "$folder/model" 2>/dev/null)
echo "accelerate 1.1.0: $old"
echo "accelerate 1.2.0: $new"
case $old in ImportError*get_module_size_with_ties*) ;; *) exit 1 ;; esac
test "$new" = loaded

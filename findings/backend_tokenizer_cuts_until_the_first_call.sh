#!/bin/sh
# transformers 5.23.0 with tokenizers 0.23.1 (CPython 3.11).
#
# Behaviour: a tokenizer.json may say how long texts are cut and padded, and folders of sentence-transformers often do. A
# tokenizer that `AutoTokenizer` makes of it does neither where it is called, unless asked. Its `backend_tokenizer`, which
# people take where they want plain ids fast, does both, as the file says. Then the first call of the tokenizer itself,
# with any text, puts truncation and padding of that same object off, for good. So what the backend gives for a text
# depends on whether its tokenizer was called before.
#
# Seen: of a text of seven words, cut to 4 ids and padded to 8 by the file, the backend gives 4 ids and 4 of padding before
# a call, and all 9 ids after it, as a call does.
#
# Fails if the backend gives the same before and after a call.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
words = "the old house by the river is empty".split()
vocabulary = {word: i for i, word in enumerate(dict.fromkeys(names + words))}
backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
special = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], names))
PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained("tokenizer")
backend.enable_truncation(4)
backend.enable_padding(length=8)
backend.save("tokenizer/tokenizer.json")

tokenizer = AutoTokenizer.from_pretrained("tokenizer")
long_text = "the old house by the river is"
called = tokenizer(long_text).input_ids
fresh = AutoTokenizer.from_pretrained("tokenizer").backend_tokenizer
before, after = fresh.encode(long_text), tokenizer.backend_tokenizer.encode(long_text)
print("ids of the backend before a call:", before.ids)
print("ids of the backend after a call: ", after.ids)
print("ids of a call:                   ", called)
sys.exit(before.ids == after.ids or after.ids != called)
PY

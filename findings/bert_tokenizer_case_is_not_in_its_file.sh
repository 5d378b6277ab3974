#!/bin/sh
# transformers 5.24.0 and 5.0.0 with tokenizers as each asks for it (CPython 3.11).
#
# Behaviour: tokenizer.json is the whole tokenizer, its normaliser included. A BERT folder that has one without
# lower-casing, and a tokenizer_config.json that does not mention `do_lower_case`, is read by AutoTokenizer in lower
# case, accents stripped, by transformers 5.24.0: BertTokenizer takes the vocabulary from the file alone and builds a
# normaliser of its own, whose default is lower case. 5.0.0 does the same with the opposite default, so that an uncased
# tokenizer.json is read in its case. The cased words of a cased model become unknown or others, in silence.
#
# Seen: "Berlin café" under a tokenizer.json that keeps case is `berlin cafe` in 5.24.0; under one that lower-cases it
# is `Berlin café` in 5.0.0. `tokenizers` itself reads both as they are written.
#
# Fails if a version reads both files as they are written, or its default is another.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/read.py" <<'PY'
import json
import sys
import tempfile
from pathlib import Path

import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "berlin", "Berlin", "café", "cafe"]


def words_of(lowercase):
    """Words of a text by `tokenizers` and by transformers, from one tokenizer.json."""
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
        opened = transformers.AutoTokenizer.from_pretrained(folder)
        return tokenizer.encode("Berlin café").tokens, opened.tokenize("Berlin café")


read = {lowercase: words_of(lowercase) for lowercase in (False, True)}
for lowercase, (written, opened) in read.items():
    print(f"{transformers.__version__}: file with lowercase={lowercase}: {written}, opened {opened}")
is_as_written = all(written == opened for written, opened in read.values())
cases = {opened[0] for _, opened in read.values()}
sys.exit(is_as_written or cases != {sys.argv[1]})
PY
for case in "5.24.0 berlin" "5.0.0 Berlin"; do
  version=${case% *}
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q --disable-pip-version-check "transformers==$version"
  "$folder/$version/bin/python" "$folder/read.py" "${case#* }"
done

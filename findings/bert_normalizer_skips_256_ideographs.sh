#!/bin/sh
# tokenizers 0.23.3 (CPython 3.11).
#
# Behaviour: BERT's tokenizer puts blanks around each ideograph, by ranges of code points. Extension E of Unicode 8 is
# U+2B820 to U+2CEAF there (google-research/bert, tokenization.py; transformers' own BasicTokenizer has it too).
# `BertNormalizer(handle_chinese_chars=True)` begins that range at U+2B920: 256 ideographs stay glued to their
# neighbours, and a fast and a slow tokenizer of one vocabulary give different tokens.
#
# Seen: of the 81,520 code points in these ranges those 256 are the only ones that differ.
#
# Fails if the normalizer puts blanks around U+2B820.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PY'
import sys

from tokenizers import normalizers

# `_is_chinese_char` of google-research/bert.
RANGES = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
]
normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False, clean_text=False)
points = [point for first, last in RANGES for point in range(first, last + 1)]
glued = [point for point in points if " " not in normalizer.normalize_str(f"a{chr(point)}b")]
print(f"{len(points)} code points in BERT's ranges; {len(glued)} are not set apart", end="")
print(f": U+{glued[0]:X} to U+{glued[-1]:X}" if glued else "")
sys.exit(0x2B820 not in glued)
PY

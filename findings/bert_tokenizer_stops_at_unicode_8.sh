#!/bin/sh
# tokenizers 0.23.3 (CPython 3.11, whose own tables are of Unicode 14).
#
# Behaviour: BERT's tokenizer in Python asks `unicodedata` what a mark and what a punctuation sign is
# (google-research/bert, tokenization.py). The one in Rust, which transformers 5 uses for every BERT, has tables of
# Unicode 8: marks added since 2016 are not stripped with `strip_accents`, and signs added since are not split off.
# Fulani in Adlam letters keeps its nukta, and a word before U+0C77 (Telugu) holds it. An uncased vocabulary that was
# made by one tokenizer is then read by another.
#
# Seen: of 1,950 nonspacing marks 384 stay, of 796 punctuation signs beyond ASCII 104 are not split off; all others,
# those of Unicode 8 (2015) among them, are.
#
# Fails if one of the newer ones is treated as Unicode 14 has it, or one of Unicode 8 is not.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PY'
import sys
import unicodedata

from tokenizers import normalizers, pre_tokenizers

normalizer = normalizers.BertNormalizer(
    lowercase=False, strip_accents=True, clean_text=False, handle_chinese_chars=False
)
splitter = pre_tokenizers.BertPreTokenizer()


def stays(mark):
    return mark in normalizer.normalize_str(f"a{mark}")


def is_glued(sign):
    return len(splitter.pre_tokenize_str(f"a{sign}b")) < 3


characters = [chr(point) for point in range(0x80, sys.maxunicode + 1)]
marks = [c for c in characters if unicodedata.category(c) == "Mn"]
signs = [c for c in characters if unicodedata.category(c).startswith("P")]
print(f"Unicode {unicodedata.unidata_version}: {sum(map(stays, marks))} of {len(marks)} marks stay", end=", ")
print(f"{sum(map(is_glued, signs))} of {len(signs)} punctuation signs are not split off")
# ADLAM NUKTA (Unicode 9) and TELUGU SIGN SIDDHAM (12); AHOM CONSONANT SIGN MEDIAL LA and SIGNWRITING COMMA (8)
is_old = stays("\U0001e94a") and is_glued("\u0c77")
is_complete = not stays("\U0001171d") and not is_glued("\U0001da87")
sys.exit(not (is_old and is_complete))
PY

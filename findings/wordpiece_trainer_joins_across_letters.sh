#!/bin/sh
# tokenizers 0.23.3 (CPython 3.11).
#
# Behaviour: `WordPieceTrainer(limit_alphabet=n)` drops the rarer letters from the words it learns from, and then
# takes what stood on both sides of a dropped letter for neighbours. It learns subwords that occur in no word of the
# text. They cost entries of the vocabulary and are never used: a word with a letter that is not in the vocabulary
# is [UNK] as a whole.
#
# Seen: of `axb a b` with an alphabet of two letters, the piece `ab`. Of an English text with some `naïve`, `nave`.
#
# Fails if every learned piece occurs in the text.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def joined(text, letters, size):
    """Learned pieces that are a part of no word."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, limit_alphabet=letters, special_tokens=["[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator(text, trainer)
    pieces = {piece.removeprefix("##") for piece in tokenizer.get_vocab()} - {"[UNK]"}
    return sorted(piece for piece in pieces if not any(piece in line for line in text))


small = joined(["axb a b"] * 10, letters=2, size=10)
line = "a native of the nation ate the oven in vain"
english = joined([line] * 100 + ["naïve"] * 50, letters=9, size=60)
print("pieces that occur in no word:", small, english)
sys.exit(not small or not english)
PY

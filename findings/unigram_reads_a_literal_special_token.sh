#!/bin/sh
# tokenizers 0.23.3 (CPython 3.11).
#
# Behaviour: `Tokenizer.encode_special_tokens = True` (`split_special_tokens=True` in transformers) is to make the
# text `<s>` text. With a Unigram vocabulary it stays the special token, since the vocabulary itself has an entry
# `<s>`: XLM-R's, mBART's and others' list it with the log probability 0, which no segmentation into real pieces
# can beat. With a WordPiece vocabulary that has `[SEP]` among its entries the switch works.
#
# Seen: `a <s> a` holds the id of <s> with the switch on and off.
#
# Fails if the switch keeps the special token out of a Unigram segmentation.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tokenizers==0.23.3
"$folder/venv/bin/python" - <<'PY'
import sys

from tokenizers import Tokenizer, models, pre_tokenizers

# As a converted sentencepiece.bpe.model: special tokens first, with the score 0.
pieces = [("<s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("a", -1.0), ("<", -3.0), ("s", -3.0), (">", -3.0)]
unigram = Tokenizer(models.Unigram(pieces, unk_id=1))
unigram.pre_tokenizer = pre_tokenizers.Metaspace()
unigram.add_special_tokens(["<s>"])
entries = ["[SEP]", "[UNK]", "a", "[", "S", "E", "P", "]"]
wordpiece = Tokenizer(models.WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
wordpiece.add_special_tokens(["[SEP]"])


def is_special(tokenizer, text, switch):
    """Whether the tokenizer takes id 0, the special token, from the text."""
    tokenizer.encode_special_tokens = switch
    return 0 in tokenizer.encode(text, add_special_tokens=False).ids


for switch in (False, True):
    print(f"encode_special_tokens={switch}: Unigram {is_special(unigram, 'a <s> a', switch)},", end=" ")
    print(f"WordPiece {is_special(wordpiece, 'a [SEP] a', switch)}")
sys.exit(not is_special(unigram, "a <s> a", True) or is_special(wordpiece, "a [SEP] a", True))
PY

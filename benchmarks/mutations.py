"""Do the tests notice? Thirty small mistakes are made in the package, one at a time, in a copy that
is thrown away; of each, only those tests run that should catch it, and of these none that `make ci` alone runs.

    python benchmarks/mutations.py                    # this clone
    python benchmarks/mutations.py . path/to/another  # and another beside it, as of an earlier commit
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results/mutations.csv"
CAUGHT = {0: "no", 1: "yes"}  # by exit code of pytest


class Mutation(NamedTuple):
    """One mistake: `right`, which stands once in a module, becomes `wrong`."""

    name: str
    module: str
    right: str
    wrong: str
    tests: str


MUTATIONS = [
    Mutation(
        "of perplexities the highest baseline counts",
        "report/claim_tests.py",
        'strongest = min if "Perpl." in column else max',
        "strongest = max",
        "test_claim_tests.py",
    ),
    Mutation(
        "p below a bound is p below minus the bound",
        "measures/statistics.py",
        ".p_above(-bound)",
        ".p_above(bound)",
        "test_statistics.py",
    ),
    Mutation(
        "equivalence by the better of two tests",
        "measures/statistics.py",
        "return max(self.p_above(-margin), self.p_below(margin))",
        "return min(self.p_above(-margin), self.p_below(margin))",
        "test_statistics.py",
    ),
    Mutation(
        "Holm multiplies by one more",
        "measures/statistics.py",
        "np.arange(len(order), 0, -1)",
        "np.arange(len(order) + 1, 1, -1)",
        "test_statistics.py",
    ),
    Mutation(
        "variance divided by n",
        "measures/statistics.py",
        "np.var(sample, ddof=1)",
        "np.var(sample, ddof=0)",
        "test_statistics.py",
    ),
    Mutation(
        "an alignment need not be mutual",
        "measures/retrieval.py",
        "is_mutual = (backward.gather(1, forward) == own_index) & is_real_a\n",
        "is_mutual = is_real_a\n",
        "test_measures_alignment.py",
    ),
    Mutation(
        "padding of the second sentence is aligned",
        "measures/retrieval.py",
        "~(is_real_a[:, :, None] & is_real_b[:, None, :])",
        "~is_real_a[:, :, None].expand(-1, -1, is_real_b.shape[1])",
        "test_measures_alignment.py",
    ),
    Mutation(
        "recall divided by what was predicted",
        "measures/retrieval.py",
        "recall=n_hits / max(1, n_gold)",
        "recall=n_hits / max(1, n_predicted)",
        "test_measures_alignment.py test_measures_retrieval.py",
    ),
    Mutation(
        "perplexity without the exponential",
        "measures/perplexity.py",
        "return math.exp(sum(nll for nll, _ in sums)",
        "return (sum(nll for nll, _ in sums)",
        "test_measures_perplexity.py",
    ),
    Mutation(
        "language means are not centred",
        "measures/language_erasure.py",
        "np.linalg.svd(means - means.mean(0)",
        "np.linalg.svd(means",
        "test_language_erasure.py",
    ),
    Mutation(
        "a character is moved past white space once",
        "text/transforms.py",
        "    while code in _UNSHIFTED:\n",
        "    if code in _UNSHIFTED:\n",
        "test_transforms.py",
    ),
    Mutation(
        "words are drawn without the seed",
        "text/transforms.py",
        '("unigram", seed)',
        '("unigram", 0)',
        "test_transforms.py",
    ),
    Mutation(
        "special tokens are shifted as well",
        "text/transforms.py",
        "    shared[: len(SPECIALS)] = True\n",
        "    shared[: len(SPECIALS)] = False\n",
        "test_transforms.py",
    ),
    Mutation(
        "special tokens are masked",
        "models/mlm_batches.py",
        "np.flatnonzero(sentences.content & (draws < masking.rate))",
        "np.flatnonzero(draws < masking.rate)",
        "test_encoder.py",
    ),
    Mutation(
        "nine in ten masked tokens are random",
        "models/mlm_batches.py",
        "np.where(u >= 1 - masking.random, random, replaced)",
        "np.where(u >= masking.random, random, replaced)",
        "test_encoder.py",
    ),
    Mutation(
        "the order of sentences without the seed",
        "models/mlm_batches.py",
        "seeded_generator(ORDER, self.seed, epoch)",
        "seeded_generator(ORDER, 0, epoch)",
        "test_pretraining.py test_encoder.py",
    ),
    Mutation(
        "masks without the seed",
        "models/training.py",
        "seeded_generator(MASKS, job.seed, step)",
        "seeded_generator(MASKS, 0, step)",
        "test_pretraining.py",
    ),
    Mutation(
        "a lock is taken that somebody has",
        "runs/files.py",
        "            if not create_once(own_file, self.path) and not self._take_over(own_file):\n",
        "            if False:\n",
        "test_store.py",
    ),
    Mutation(
        "every lock is ours",
        "runs/files.py",
        'return owner_in(self.path).get("name") == self.name',
        'return owner_in(self.path).get("name") != ""',
        "test_store.py",
    ),
    Mutation(
        "nothing is stale",
        "runs/staleness.py",
        'return "stale" if self.code is not None and self.why(spec) else "found"',
        'return "found"',
        "test_staleness.py",
    ),
    Mutation(
        "a stray I- begins no entity",
        "tasks/metrics.py",
        'begins = mark == "B" or (mark == "I" and convention == "conll")',
        'begins = mark == "B"',
        "test_tagging.py",
    ),
    Mutation(
        "recall of entities divided by what was predicted",
        "tasks/metrics.py",
        "recall=n_right / max(1, n_gold)",
        "recall=n_right / max(1, n_predicted)",
        "test_tagging.py",
    ),
    Mutation(
        "the worst epoch is kept",
        "tasks/tuning.py",
        "if scores[-1] > max(scores[:-1], default=-1):",
        "if scores[-1] < min(scores[:-1], default=2):",
        "test_tuning.py test_nli.py",
    ),
    Mutation(
        "fine-tuning reads every seed in one order",
        "tasks/tuning.py",
        "seeded_generator(ORDER, seed, epoch)",
        "seeded_generator(ORDER, 0, epoch)",
        "test_tuning.py test_nli.py test_tagging.py",
    ),
    Mutation(
        "a window of one word less",
        "models/glove.py",
        "for distance in range(1, window + 1):",
        "for distance in range(1, window):",
        "test_word_embeddings.py",
    ),
    Mutation(
        "naive Bayes without the prior",
        "tasks/baselines.py",
        "prior = np.bincount(class_of_bag) / len(class_of_bag)",
        "prior = np.ones(len(names))",
        "test_bags_of_subwords.py",
    ),
    Mutation(
        "the path does not end in a tag's end",
        "tasks/bilstm_crf.py",
        "score, tag = (best + end).max(1)",
        "score, tag = best.max(1)",
        "test_bilstm_crf.py",
    ),
    Mutation(
        "padding goes on in the best path",
        "tasks/bilstm_crf.py",
        "        is_inside = (t < lengths)[:, None]\n        best =",
        "        is_inside = (t <= lengths)[:, None]\n        best =",
        "test_bilstm_crf.py",
    ),
    Mutation(
        "neighbours are those after next",
        "experiments/ordering.py",
        "in_order.diagonal(1).mean()",
        "in_order.diagonal(2).mean()",
        "test_k_tables.py",
    ),
    Mutation(
        "an asterisk for what is not significant",
        "experiments/overlap.py",
        "difference.p_above() < 0.05",
        "difference.p_above() > 0.05",
        "test_k_tables.py",
    ),
]


def copy_of(tree: Path, to: Path) -> Path:
    """The files of a clone that are under version control."""
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=tree, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / name, to / name)
    return to


def exit_code(tree: Path, tests: str) -> int:
    """Of the tests of a tree, stopped at the first that fails."""
    files = [f"tests/{name}" for name in tests.split()]
    # bytecode is found by whole seconds of a file's age, and these edits come closer than that
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not ci", "--durations=0", *files]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True).returncode


def is_caught(tree: Path, mutation: Mutation) -> str:
    """`yes`, `no`, or what went wrong; the tree is as it was afterwards."""
    path = tree / "xlingual_nb" / mutation.module
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.right) != 1:
        return "not there"
    path.write_text(text.replace(mutation.right, mutation.wrong), encoding="utf-8")
    try:
        return CAUGHT.get(exit_code(tree, mutation.tests), "no test ran")
    finally:
        path.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = [dict(mutation=m.name, module=m.module, tests=m.tests) for m in MUTATIONS]
    for tree in given.trees:
        command = ["git", "log", "-1", "--format=%h"]
        commit = subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout.strip()
        with tempfile.TemporaryDirectory() as folder:
            copy = copy_of(tree, Path(folder))
            everything = " ".join(sorted({t for m in MUTATIONS for t in m.tests.split()}))
            if code := exit_code(copy, everything):
                sys.exit(
                    f"{tree}: its tests end with {code} before anything is changed: see to them"
                )
            for row, mutation in zip(rows, MUTATIONS):
                row[f"caught at {commit}"] = is_caught(copy, mutation)
                print(commit, row[f"caught at {commit}"], mutation.name, flush=True)
    with open(given.output, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()

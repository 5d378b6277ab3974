"""Fine-tuning runs: what a spec of K's study makes of text, disguise, separators and shares, and that its numbers are
those of the tasks called by hand.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.experiments.k2020_common import (
    labelled_split,
    bbert_spec,
    ner_specs,
    source_only_spec,
    nli_spec,
    retrieval_spec,
    bbert_spec_with_overlap,
    untrained_spec,
)
from xlingual_nb.text.parallel import read_parallel_corpora
from xlingual_nb.runs.engine import run
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.experiments.study_data import corpus_spec
from xlingual_nb.text.sources import CorpusSpec, read_corpus
from xlingual_nb.text.records import read_records
from xlingual_nb.runs.store import Store
from xlingual_nb.models.pretraining import (
    evaluation_transforms,
    pretraining_dataset,
    token_ids,
    translated_ids,
    find_language_view,
    language_views,
)
from xlingual_nb.models.checkpoints import load_checkpoint, model_inputs
from xlingual_nb.models import mlm_batches
from xlingual_nb.tasks import bilstm_crf, encoding, metrics, pair_classifier as pairs_task
from xlingual_nb.text import sources, tokenizers, transforms

torch.set_num_threads(1)
SIZES = bilingual_config("smoke", "micro")
PAIR = "enfake", "es"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("tasks") / "runs")


def made(store, *specs):
    run(specs, store, progress=False)
    return [store.read(s) for s in specs]


def test_fake_english_shares_no_piece_with_spanish_and_english_some(store):
    for source, most in (("enfake", 0.0), ("en", 1.0)):
        spec = bbert_spec(SIZES, (source, "es"), 0)
        run([spec], store, progress=False)
        tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
        common = transforms.type_token_overlap(
            *(token_ids(l, tokenizer, store, 48) for l in spec.languages)
        )
        assert common["types"] == 0 if most == 0 else 0 < common["types"] < most


def test_labelled_text_wears_the_disguise_of_its_corpus(store):
    plain, fake = (
        labelled_split(SIZES, bbert_spec(SIZES, PAIR, 0), "ner", l, "test").records
        for l in ("en", "enfake")
    )
    run([plain, fake], store, progress=False)
    plain, fake = (read_records(store.path(r)) for r in (plain, fake))
    assert [r["tags"] for r in plain] == [r["tags"] for r in fake]
    for a, b in zip(plain, fake):
        assert b["tokens"] == transforms.transform_strings(
            ("cut_words", "unicode_shift"), a["tokens"]
        )


def test_a_nli_run_is_the_task_called_by_hand(store):
    spec = bbert_spec(SIZES, PAIR, 0)
    asked = nli_spec(SIZES, spec, "enfake", ["es"])
    (kept,) = made(store, asked)
    checkpoint, tokenizer = (
        load_checkpoint(store.path(spec)),
        tokenizers.read_tokenizer(store.path(spec.tokenizer)),
    )

    def sides(l):
        return encoding.encode_pairs(tokenizer, read_records(store.path(l.records)))

    p, h, labels = sides(asked.train)
    *watched, gold = sides(asked.dev)
    dev = encoding.Inputs(tuple(watched), gold, views=("enfake", "enfake"))
    classifier = pairs_task.fine_tune(
        checkpoint, p, h, labels, ("enfake", "enfake"), asked.settings, asked.seed, dev=dev
    )
    assert set(kept["accuracy"]) == {"enfake|enfake", "es|es", "enfake|es", "es|enfake"}
    for first, second in asked.tests:
        p, h, labels = sides(first)[0], sides(second)[1], sides(first)[2]
        by_hand = metrics.accuracy(
            pairs_task.predict(classifier, p, h, (first.language, second.language)), labels
        )
        assert kept["accuracy"][f"{first.language}|{second.language}"] == by_hand
    assert kept["by_kind"]["es|es"].keys() == {"lexical", "function"} and kept["majority"][
        "es|es"
    ] == pytest.approx(1 / 3, abs=0.1)


def test_training_reads_the_part_train_and_tests_the_part_test():
    spec = bbert_spec(SIZES, PAIR, 0)
    pairs, names = (
        nli_spec(SIZES, spec, "enfake", ["es"]),
        ner_specs(SIZES, spec, "enfake", ["es"])[0],
    )
    assert (
        pairs.train.records.part == names.train.records.part == "train"
        and names.dev.records.part == "dev"
    )
    assert {l.records.part for l in (*sum(pairs.tests, ()), *names.tests)} == {"test"}


def test_a_ner_run_is_the_task_called_by_hand(store):
    spec = bbert_spec(SIZES, PAIR, 0)
    (asked,) = ner_specs(SIZES, spec, "enfake", ["es"])
    (kept,) = made(store, asked)
    checkpoint, tokenizer = (
        load_checkpoint(store.path(spec)),
        tokenizers.read_tokenizer(store.path(spec.tokenizer)),
    )

    def features(l):
        found = read_records(store.path(l.records))
        pieces, firsts = encoding.encode_words(tokenizer, found)
        return bilstm_crf.first_subword_vectors(checkpoint, pieces, firsts, l.language), [
            r["tags"] for r in found
        ]

    tagger = bilstm_crf.train_tagger(
        *features(asked.train), *features(asked.dev), asked.settings, asked.seed
    )
    for l in asked.tests:
        read, tags = features(l)
        assert (
            kept["f1"][l.language] == metrics.span_f1(tags, bilstm_crf.predict(tagger, read))["f1"]
        )


def test_a_language_read_backwards_is_tagged_backwards(store):
    from seqeval.metrics.sequence_labeling import get_entities

    plain = bbert_spec_with_overlap(SIZES, 0.0, 0)
    turned = replace(plain.languages[0], transforms=(*plain.languages[0].transforms, "inv_order"))
    # a word a piece
    spec = replace(
        plain,
        languages=(turned, plain.languages[1]),
        tokenizer=replace(plain.tokenizer, kind="words", size=133),
    )
    (asked,) = ner_specs(SIZES, spec, "en", ["enfake"])
    (kept,) = made(store, asked)
    checkpoint, tokenizer = (
        load_checkpoint(store.path(spec)),
        tokenizers.read_tokenizer(store.path(spec.tokenizer)),
    )

    def backwards(record):
        tags, n = ["O"] * len(record["tags"]), len(record["tags"])
        for kind, start, end in get_entities(record["tags"]):
            tags[n - 1 - end : n - start] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start)
        return dict(tokens=record["tokens"][::-1], tags=tags)

    def features(l):
        found = read_records(store.path(l.records))
        if l.language == "enfake":
            found = list(map(backwards, found))
        pieces, firsts = encoding.encode_words(tokenizer, found)
        ids = (
            transforms.apply_transforms((turned.transforms[0],), pieces, tokenizer.get_vocab_size())
            if l.language == "enfake"
            else pieces
        )
        return bilstm_crf.first_subword_vectors(checkpoint, ids, firsts, l.language), [
            r["tags"] for r in found
        ]

    tagger = bilstm_crf.train_tagger(
        *features(asked.train), *features(asked.dev), asked.settings, asked.seed
    )
    for l in asked.tests:
        read, tags = features(l)
        assert (
            kept["f1"][l.language] == metrics.span_f1(tags, bilstm_crf.predict(tagger, read))["f1"]
            and len(set(sum(tags, []))) > 3
        )


def test_a_language_that_was_never_seen_can_be_tested(store):
    spec = source_only_spec(bbert_spec(SIZES, PAIR, 0))
    found = made(
        store,
        nli_spec(SIZES, spec, "enfake", ["es"]),
        *ner_specs(SIZES, spec, "enfake", ["es"]),
        retrieval_spec(SIZES, spec, "enfake", "es"),
    )
    assert (
        "es|es" in found[0]["accuracy"]
        and "es" in found[1]["f1"]
        and 0 <= found[2]["rho_upper"] <= 1
        and "mu" not in found[2]
    )
    assert find_language_view(spec, 300, "es") == replace(
        find_language_view(spec, 300, "enfake"), name="es"
    )


def test_seeds_of_one_model_read_the_same_pieces_and_tag_with_seeds_of_their_own():
    sizes = replace(SIZES, taggers=3)
    one, other = (ner_specs(sizes, bbert_spec(sizes, PAIR, s), "enfake", ["es"]) for s in (0, 1))
    assert one[0].checkpoint.tokenizer == other[0].checkpoint.tokenizer and [
        n.seed for n in one + other
    ] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_shared_pieces_are_shared_in_training_measuring_and_tasks(store, share):
    spec = bbert_spec_with_overlap(SIZES, share, 0)
    asked = (
        nli_spec(SIZES, spec, "enfake", ["en"]),
        *ner_specs(SIZES, spec, "enfake", ["en"]),
        retrieval_spec(SIZES, spec, "enfake", "en"),
    )
    found = made(store, *asked)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    size, (fake, plain) = (
        tokenizer.get_vocab_size(),
        (token_ids(l, tokenizer, store, 48) for l in spec.languages),
    )
    kept = transforms.shared_subwords(size, share)
    assert (
        fake.ids == np.where(kept[plain.ids] | (plain.ids == 1), plain.ids, plain.ids + size)
    ).all() and language_views(spec, size)[0].token_offset == 0
    assert all(l.records.transforms == () for l in (asked[0].train, *asked[1].tests)), (
        "the shift is one of ids, so the text stays plain"
    )
    if share == 1.0:
        assert (
            found[2]["rho_lower"] > 0.9
            and found[0]["accuracy"]["enfake|enfake"] == found[0]["accuracy"]["en|en"]
            and len(set(found[1]["f1"].values())) == 1
        )
    ids = np.arange(5, size)
    assert (
        translated_ids(*spec.languages, ids, size)[:, 0] == np.where(kept[ids], ids, ids + size)
    ).all()


def test_markers_and_pairs_reach_the_checkpoint(store):
    spec = bbert_spec(
        SIZES,
        PAIR,
        0,
        markers=True,
        inputs="pairs",
        nsp=True,
        whole_words=True,
        exponent=0.7,
        shape=SIZES.paired[0],
        training=SIZES.paired[1],
    )
    run([spec], store, progress=False)
    checkpoint, size = (
        load_checkpoint(store.path(spec)),
        tokenizers.read_tokenizer(store.path(spec.tokenizer)).get_vocab_size(),
    )
    assert [checkpoint.view(l).separator for l in PAIR] == [
        size,
        size + 1,
    ] and checkpoint.vocabulary == size + 2
    assert checkpoint.tokenizer.convert_ids_to_tokens([size, size + 1]) == [
        "[SEP-enfake]",
        "[SEP-es]",
    ]
    assert pairs_task.stored_pooler(checkpoint) is not None
    text = token_ids(
        spec.languages[1], tokenizers.read_tokenizer(store.path(spec.tokenizer)), store, 28
    )
    assert model_inputs(checkpoint, text, np.array([0]), "es")[0]["input_ids"][0].tolist() == [
        2,
        *text[0],
        size + 1,
    ]
    m = pretraining_dataset(spec, tokenizers.read_tokenizer(store.path(spec.tokenizer)), store)
    s = mlm_batches.assemble_batch(m, np.arange(4))
    assert len(m.follows) == len(m) and set(s.ids[~s.content]) == {2, size}, (
        "the first examples are Fake-English"
    )


def test_permutation_and_halves_are_of_training_alone(store):
    spec = bbert_spec(SIZES, PAIR, 0, permutation="permute(0.5)")
    assert [l.transforms for l in spec.languages] == [
        ("permute(0.5,0)",),
        ("permute(0.5,1)",),
    ] and all(evaluation_transforms(l) == () for l in spec.languages)
    run([spec], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    told, natural = (
        token_ids(spec.languages[0], tokenizer, store, 48),
        token_ids(
            spec.languages[0], tokenizer, store, 48, evaluation_transforms(spec.languages[0])
        ),
    )
    assert told != natural and all(sorted(a) == sorted(b) for a, b in zip(told, natural))


def test_untrained_models_take_no_step_and_seeds_differ(store):
    specs = [untrained_spec(bbert_spec(SIZES, PAIR, s)) for s in (0, 1)]
    run(specs, store, progress=False)
    assert (
        specs[0].training.steps == 0
        and (store.path(specs[0]) / "model.safetensors").read_bytes()
        != (store.path(specs[1]) / "model.safetensors").read_bytes()
    )


# ---- texts


def write(folder, name, lines):
    (folder / name).write_text("".join(l + "\n" for l in lines), encoding="utf-8")
    return CorpusSpec(f"file:{folder / name}")


def test_verses_are_matched_by_their_ids_and_lines_by_their_number(store, tmp_path):
    first = write(tmp_path, "en.tsv", [f"GEN.1.{i}\te{i}" for i in range(12) if i != 2])
    second = write(tmp_path, "es.tsv", [f"GEN.1.{i}\ts{i}" for i in range(1, 13)])
    lines = write(tmp_path, "es.txt", ["C", "E"])
    run([first, second, lines], store, progress=False)
    one, other = read_parallel_corpora(store, first, second)
    shared = [i for i in range(1, 12) if i != 2]
    assert one.keys == other.keys == [f"GEN.1.{i}" for i in shared] and other.sentences == [
        f"s{i}" for i in shared
    ]
    assert read_parallel_corpora(store, first, None)[1] == read_corpus(store.path(first))
    with pytest.raises(
        InputError, match="en.tsv .11 sentences.* and .*es.txt .2 sentences. are not parallel"
    ):
        read_parallel_corpora(store, first, lines)


def test_a_wrong_heads_count_or_language_is_said_before_training():
    with pytest.raises(InputError, match="5 heads do not divide"):
        replace(SIZES.base.shape, heads=5)
    with pytest.raises(InputError, match="language 'xx'"):
        sources.load_corpus("micro/xx")
    with pytest.raises(InputError, match="no text in 'fr'"):
        corpus_spec(bilingual_config("gpu", "mix"), "fr")

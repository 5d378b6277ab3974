"""What the papers' released code does, held against ours: by ports of a few lines, by Hugging Face,
by closed forms.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM
from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

from test_encoder import VIEWS, batch_of, flat_sentence, mixture, padded
from xlingual_nb.experiments import architecture, encoder_shapes, k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.measures.multilinguality import MeasureSpec, translation_pairs
from xlingual_nb.models.mlm_batches import PAIRS, document_pairs, seeded_generator
from xlingual_nb.models.encoder import (
    BatchedModels,
    hidden_layers,
    mlm_logits,
    training_losses,
    stack_batches,
)
from xlingual_nb.models.pretraining import Language, PretrainSpec, model_ids, language_reader
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.models.training import (
    hub_config,
    load_stack,
    training_step,
    create_optimiser,
    save_checkpoint,
)
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers
from xlingual_nb.text.corpora import Corpus
from xlingual_nb.text.sources import CorpusSpec, load_corpus, load_spec
from xlingual_nb.text.tokenizers import Encoded, count_words, train_wordpiece
from xlingual_nb.text.transforms import apply_text_transforms
from xlingual_nb.text.vocabularies import TokenizerSpec

SAID = [
    'He said, "Go!" and they went.',
    "¿Quién? -- no lo sé.",
    "It's 3.14, isn't it?",
    "一二 three",
    "naïve café\u00a0now",
]
FAKE = k2020_common.script_transforms("enfake")


# ---- K's Fake-English


def released_fake(line: str) -> str:
    """K's preprocessing of a line: BERT's basic tokenizer, then 200,000 to every character, then
    blanks between.
    """
    return " ".join(
        "".join(chr(ord(c) + 200_000) for c in word)
        for word in BasicTokenizer(do_lower_case=False).tokenize(line)
    )


def test_fake_english_is_that_of_the_released_code():
    assert apply_text_transforms(FAKE, Corpus("en", (tuple(SAID),))).sentences == [
        released_fake(line) for line in SAID
    ]


def test_fake_english_has_the_words_of_english(texts):
    fake = apply_text_transforms(FAKE, texts)
    words, disguised = count_words(texts.sentences), count_words(fake.sentences)
    assert sorted(words.values()) == sorted(disguised.values()) and len(words) == len(disguised)
    assert {"".join(chr(ord(c) + 200_000) for c in w): n for w, n in words.items()} == disguised


@pytest.fixture(scope="module")
def texts():
    """Text with punctuation: the Bible where there is one."""
    try:
        return load_corpus("bible/en-bbe", books="NT", split="clauses", sentences=500)
    except ValueError:
        return Corpus("en", (tuple(SAID[:3]),))


def test_word_frequencies_are_drawn_from_cut_words():
    """Punctuation is a word of its own to the released code, which resamples its preprocessed
    text.
    """
    text = Corpus("es", (("uno, dos.", "tres, uno."),))
    words = {
        w
        for s in apply_text_transforms(k2020_common.unigram_transforms(()), text).sentences
        for w in s.split()
    }
    assert words <= {"uno", "dos", "tres", ",", "."}


# ---- [UNK]

TRAIN = CorpusSpec("micro/en", parameters=(("sentences", 40), ("vocabulary", 128)))
DEV = CorpusSpec("micro/en", "dev", parameters=(("sentences", 40), ("vocabulary", 128)))
ENFAKE = Language("en", TRAIN), Language("enfake", TRAIN, ("enfake",))
TINY = Shape(layers=1, hidden=16, heads=1, intermediate=32, max_tokens=24)


def small(**switches) -> PretrainSpec:
    """A model whose vocabulary of forty words leaves many words unknown."""
    return PretrainSpec(
        ENFAKE, TokenizerSpec(TRAIN, 45, "words"), TINY, Training(epochs=1, batch=16), **switches
    )


@pytest.mark.parametrize("shift_special", [False, True])
def test_unk_goes_with_the_special_tokens(tmp_path, shift_special):
    store, spec = Store(tmp_path), small(shift_special=shift_special)
    run([spec.tokenizer, TRAIN], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    plain, fake = (model_ids(spec, language, tokenizer, store).ids for language in ENFAKE)
    assert (plain == 1).mean() > 0.05, "the text must have unknown words, or this shows nothing"
    assert (
        set(fake[plain == 1]) == {1 + 45 * shift_special}
        and (fake[plain != 1] == plain[plain != 1] + 45).all()
    )
    read = language_reader(spec, "enfake", tokenizer)[1]
    assert read(Encoded.of([[1, 7]])).ids.tolist() == [1 + 45 * shift_special, 52]


def test_word_translation_over_all_pieces_is_over_all(tmp_path):
    """Every entry of the vocabulary and its copy at V, special tokens included, as D's code has
    it.
    """
    store, spec = Store(tmp_path), small()
    run([spec.tokenizer], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    for words, first in (("all", 0), ("content", 5)):
        pairs = translation_pairs(MeasureSpec(spec, DEV, words=words), *ENFAKE, tokenizer)
        assert pairs.tolist() == [[i, i + 45] for i in range(first, 45)]


# ---- optimiser and gradient


@pytest.fixture
def checkpoint(tmp_path):
    """A random model of 80 entries, as a folder."""
    save_checkpoint(
        tmp_path,
        BatchedModels(Shape(2, 32, 1, 64, 32), 80, [1], std=0.2),
        0,
        hub_config(Shape(2, 32, 1, 64, 32), 80, 0.0, VIEWS),
        train_wordpiece(["a b c d e f"], 20),
    )
    return tmp_path


def released_adam(weights, gradients, rate, epsilon):
    """The AdamW of D's library: epsilon before the correction for the start at zero (weight decay
    left out).
    """
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    for t, g in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
        pace = rate * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        weights = weights - pace * first / (np.sqrt(second) + epsilon)
    return weights


@pytest.mark.parametrize("early", [True, False])
def test_epsilon_before_the_correction(checkpoint, doubles, early):
    stack, kept = load_stack([checkpoint]), []
    training = Training(
        warmup=0,
        learning_rate=0.01,
        epsilon=0.1,
        weight_decay=0.0,
        dropout=0.0,
        clip=1e9,
        early_epsilon=early,
    )
    batch, adam, start = (
        stack_batches([batch_of(mixture(), np.arange(20))]),
        create_optimiser(stack, training),
        stack.flat[0].detach().clone(),
    )
    for step in range(4):
        training_step(stack, adam, [batch], step=step, steps=10**12, training=training)
        kept.append(stack.flat[0].grad.numpy().copy())
    theirs = released_adam(start.numpy(), kept, 0.01, 0.1)
    assert (np.abs(stack.flat[0].detach().numpy() - theirs).max() < 1e-9) == early


@pytest.mark.parametrize("still", [True, False])
def test_pad_as_a_random_token_learns_nothing_as_an_input(checkpoint, doubles, still):
    """Hugging Face's BERT never gives the input embedding of [PAD] a gradient; with the switch ours
    does the same.
    """
    stack, hub = (
        load_stack([checkpoint]),
        AutoModelForMaskedLM.from_pretrained(checkpoint).eval().double(),
    )
    stack.still_pad = still
    m, indices = mixture(), np.arange(100)
    batch = batch_of(m, indices)
    assert any((group["ids"][group["sentence"] >= 0] == 0).any() for group in batch.groups), (
        "no [PAD] was drawn"
    )
    inputs, labels = padded(m, indices, batch)
    hub(**inputs, labels=labels).loss.backward()
    stack.backward(training_losses(stack, stack_batches([batch])))
    ours = stack.flat[0].grad[0, : 80 * 32].view(80, 32)
    theirs = hub.bert.embeddings.word_embeddings.weight.grad
    assert (
        torch.allclose(ours[1:], theirs[1:], atol=1e-10)
        and torch.allclose(ours[0], theirs[0], atol=1e-10) == still
    )


def test_visible_padding_is_bert_without_an_attention_mask(checkpoint, doubles):
    stack, hub = (
        load_stack([checkpoint]),
        AutoModelForMaskedLM.from_pretrained(checkpoint).eval().double(),
    )
    m, indices = replace(mixture(), padded=True), np.arange(0, 120, 5)
    batch = batch_of(m, indices)
    # by the test's own loop: each slot of its sentence
    inputs, _ = padded(replace(m, padded=False), indices, batch)
    with torch.no_grad():
        ours = mlm_logits(stack, hidden_layers(stack, stack_batches([batch]))[-1])[0]
        theirs = hub(**{k: v for k, v in inputs.items() if k != "attention_mask"}).logits
    where = flat_sentence(batch)
    longest = max(m.lengths[indices])
    fake = inputs["input_ids"][m.language[indices] == 1]
    assert (inputs["attention_mask"] == 1).all() and inputs["input_ids"].shape[1] == longest
    assert (fake == 40).any() and not (fake == 0).all(1).any(), (
        "[PAD] is shifted with the special tokens"
    )
    for i in range(len(indices)):
        assert (ours[torch.from_numpy(np.flatnonzero(where == i))] - theirs[i]).abs().max() < 1e-9


# ---- short pairs


def test_a_share_of_documents_is_cut_short():
    text, ends = Encoded.of([[5, 6, 7]] * 4000), np.arange(20, 4001, 20)

    def lengths(short):
        pairs = document_pairs(text, ends, 60, seeded_generator(PAIRS, 3), short)
        return np.array([p.first_length + p.second_length for p in pairs])

    assert (lengths(0.0) == lengths(0.0)).all() and lengths(0.0).max() <= 60
    never, always = lengths(0.0), lengths(1.0)
    assert always.mean() < 0.75 * never.mean()
    assert len(never) < len(lengths(0.1)) < len(always), (
        "a tenth of the documents makes more, and shorter, examples"
    )


# ---- texts of their own


def meanings(text: CorpusSpec) -> set:
    from xlingual_nb import microworld

    said = microworld.annotated_corpus(
        text.source.partition("/")[2], text.part, **dict(text.parameters)
    ).meanings
    return set(map(tuple, said.matrix[:, :].tolist()))


def test_training_texts_are_no_translations_but_development_texts_are():
    sizes = bilingual_config("smoke", "micro")
    english, spanish = (k2020_common.language_corpus(sizes, l) for l in ("en", "es"))
    shared = len(meanings(english) & meanings(spanish)) / len(meanings(english))
    assert shared < 0.2
    dev = [load_spec(k2020_common.language_corpus(sizes, l, "dev")) for l in ("en", "es")]
    assert dev[0].keys == dev[1].keys
    assert k2020_common.language_corpus(sizes, "enfake").parameters == english.parameters, (
        "Fake-English says what English says, as K's"
    )
    control = bilingual_config("laptop", "micro-parallel")
    assert meanings(replace(k2020_common.language_corpus(control, "en"))) == meanings(
        k2020_common.language_corpus(control, "es")
    )


def test_no_pair_of_the_gpus_real_text_reads_verses_that_are_translations():
    sizes = bilingual_config("gpu", "mix")

    def books(language, part):
        return set(
            dict(k2020_common.language_corpus(sizes, language, part).parameters)["books"].split(",")
        )

    for target in sizes.targets:
        assert not books("en", "train") & books(target, "train")
    learnt = set().union(*(books(language, "train") for language in ("en", *sizes.targets)))
    dev = {frozenset(books(language, "dev")) for language in ("en", *sizes.targets)}
    assert len(dev) == 1 and not learnt & set(*dev) and len(learnt | set(*dev)) == 27, (
        "a New Testament has 27 books"
    )


def test_the_shared_pieces_are_drawn_by_the_seed():
    sizes = bilingual_config("laptop", "micro")
    chains = {
        k2020_common.bbert_spec_with_overlap(sizes, 0.25, seed).languages[0].transforms
        for seed in range(3)
    }
    assert len(chains) == 3


# ---- shapes and languages of notebook 04


def test_laptop_shapes_are_as_unlike_as_the_papers():
    made = encoder_shapes.architecture_table(bilingual_config("laptop", "micro"))
    assert made.off.abs().max() <= 0.02
    assert (
        not made[made.table == "table6"]
        .duplicated(["layers", "heads", "hidden", "intermediate"])
        .any()
    )


def test_tables_name_the_language_that_is_measured():
    cells = architecture.list_table_entries("laptop", "micro", 1, "4")
    columns = {c.column for c in cells}
    assert "XNLI Spanish" in columns and "XNLI Russian" not in columns
    tested = {c.metric for c in cells if c.column == "XNLI Spanish" and c.row.startswith("depth")}
    assert tested == {"accuracy es|es"}
    assert "XNLI Russian" in {
        c.column for c in architecture.list_table_entries("gpu", "micro", 1, "4")
    }

"""Taught here and taken along: four families of foreign checkpoints, each with its own tokenizer,
from a folder to one that `transformers` opens.
"""

import string
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from tokenizers import pre_tokenizers
from torch import nn

from xlingual_nb.errors import InputError
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.zero_shot_classification import (
    DOCUMENTS,
    TUNED_NLI,
    DocumentRecords,
    SentencesSpec,
)
from xlingual_nb.tasks.zero_shot_tagging import TUNED_POS, TunedTagsSpec, ner_task
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.finetuning import answer_records, fit_network, new_network
from xlingual_nb.tasks.biaffine_parser import parsing_adapter
from xlingual_nb.tasks.task_heads import (
    ner_adapter,
    pos_adapter,
    read_pairs,
    read_words,
    sentence_adapter,
)
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.saving import CLASSES, LAYERS, save_network, set_two_layers
from xlingual_nb.tasks.task import encode_for_checkpoint
from xlingual_nb.text.formats import LABELS
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
LETTERS = string.ascii_letters + string.digits + string.punctuation
WIDE = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=200,
)
NARROW = dict(dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=200)
FAST = Tuning(epochs=2, batch=8, learning_rate=3e-3, dropout=0.0, pieces=190)


def word_pieces():
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
    ]
    return {piece: i for i, piece in enumerate(pieces)}


def byte_pairs():
    letters = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        "<mask>",
    ]
    return hf.RobertaTokenizer(
        {letter: i for i, letter in enumerate(letters)}, [], add_prefix_space=True
    )


def sentence_pieces():
    return hf.XLMRobertaTokenizer(
        [
            *((s, 0.0) for s in ("<s>", "<pad>", "</s>", "<unk>")),
            ("▁", -3.0),
            *((l, -4.0) for l in LETTERS),
            ("<mask>", 0.0),
        ]
    )


def foreign(folder, family, seed=0):
    """A small random checkpoint of a family, with a tokenizer of the family's own kind, as
    `save_pretrained` leaves them.
    """
    tokenizer = {
        "bert": lambda: hf.BertTokenizer(word_pieces(), do_lower_case=False),
        "roberta": byte_pairs,
        "xlm-roberta": sentence_pieces,
        "distilbert": lambda: hf.DistilBertTokenizer(word_pieces(), do_lower_case=False),
    }[family]()
    config = hf.AutoConfig.for_model(
        family, vocab_size=len(tokenizer), **(NARROW if family == "distilbert" else WIDE)
    )
    torch.manual_seed(seed)
    hf.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def side(task, part, size):
    kind = DocumentRecords if task == "documents" else RecordsSpec
    more = {"level": "negated"} if task == "nli" else {}
    return LabelledRecords(
        "en", kind(task, "micro/en", part, size, tuple((dict(vocabulary=128) | more).items()))
    )


TASKS = {
    "documents": (DOCUMENTS, sentence_adapter, SentencesSpec),
    "nli": (TUNED_NLI, sentence_adapter, SentencesSpec),
    "ner": (ner_task(), ner_adapter, TunedTagsSpec),
    "pos": (TUNED_POS, pos_adapter, TunedTagsSpec),
}


def scores_by(network, inputs, i):
    """What a network's head gives to one record: a row of scores, or one a word."""
    x, lengths = network(inputs, np.array([i]))
    return (
        network.head(x, lengths)
        if network.form.cut.__name__ == "check_texts"
        else network.head(x)[0]
    ).detach()


@torch.no_grad()
def scores_of(opened, tokenizer, record):
    """The same by what transformers opens, from text: its own tokenizer, first pieces of words."""
    if "tokens" not in record:
        sides = [record[name] for name in ("first", "second") if record[name]]
        return opened(**tokenizer(*sides, return_tensors="pt")).logits
    said = tokenizer(record["tokens"], is_split_into_words=True, return_tensors="pt")
    words = said.word_ids()
    return opened(**said).logits[0][[words.index(word) for word in range(len(record["tokens"]))]]


@pytest.mark.parametrize(
    "family,task",
    [("bert", "documents"), ("roberta", "nli"), ("distilbert", "ner"), ("xlm-roberta", "pos")],
)
def test_a_foreign_checkpoint_goes_through_end_to_end(tmp_path, family, task):
    """As a run; by hand, which comes to the same score; saved; opened by transformers, where it
    answers alike.
    """
    folder, store = str(foreign(tmp_path / family, family)), Store(tmp_path / "runs")
    known, form, kind = TASKS[task]
    train, dev, test = side(task, "train", 40), side(task, "dev", 12), side(task, "test", 12)
    spec = kind(ExternalCheckpointSpec(folder), train, dev, (test,), FAST)
    run([spec], store, Inline(), progress=False)
    encoder = load_encoder(folder)
    said = {
        s: encode_for_checkpoint(
            known, ExternalCheckpointSpec(folder), s, encoder.tokenizer, store, encoder
        )
        for s in (train, dev, test)
    }
    network = fit_network(encoder, said[train], said[dev], form(), FAST)
    given = answer_records(network, said[test])
    for name, value in known.score(said[test], given).items():
        if name in ("accuracy", "f1"):
            assert store.read(spec)[name]["en"] == value

    opened = (
        getattr(hf, CLASSES[type(network.head)])
        .from_pretrained(save_network(network, tmp_path / "saved"))
        .eval()
    )
    tokenizer, names = hf.AutoTokenizer.from_pretrained(tmp_path / "saved"), opened.config.id2label
    assert opened.config.model_type == family and len(tokenizer) == len(encoder.tokenizer)
    gold = sorted(
        {
            label
            for r in read_records(store.path(train.records))
            for label in ([r["label"]] if "label" in r else r["tags"])
        }
    )
    assert sorted(names.values()) == gold
    for i, record in enumerate(read_records(store.path(test.records))):
        ours = scores_by(network, said[test], i)
        if task == "nli":  # one separator between the sides, where RoBERTa's tokenizer writes two
            with torch.no_grad():
                theirs = opened(**read_pairs(encoder, said[test], np.array([i]), FAST)[0]).logits
        else:
            theirs = scores_of(opened, tokenizer, record)
        torch.testing.assert_close(theirs, ours, atol=2e-5, rtol=1e-5)
        told = [names[int(k)] for k in theirs.argmax(-1)]
        if "tokens" in record:
            assert network.form.join([told]) == given[i]
        else:
            assert told == [LABELS[given[i]] if task == "nli" else given[i]]


CONFIGS = {
    "albert": dict(embedding_size=16, num_hidden_groups=1),
    "electra": dict(embedding_size=16),
    "distilbert": NARROW,
}


def network_of(tmp_path, family, form, gold, settings=FAST):
    sizes = NARROW if family == "distilbert" else WIDE | CONFIGS.get(family, {})
    config = hf.AutoConfig.for_model(family, vocab_size=40, pad_token_id=0, **sizes)
    encoder = load_encoder(tiny_checkpoint(tmp_path / family, 40, config=config))
    rng = np.random.default_rng(0)
    texts = tuple(
        Encoded.of(rng.integers(5, 40, 6) for _ in gold)
        for _ in range(2 if isinstance(gold, np.ndarray) else 1)
    )
    inputs = Inputs(texts, gold, Encoded.of([range(6)] * len(gold)), views=("any",) * len(texts))
    network = new_network(encoder, inputs, form, settings, 0)
    nn.init.normal_(network.head.out.weight) if hasattr(network.head, "out") else None
    network.encoder.model.eval(), network.head.eval()
    return network, inputs


@pytest.mark.parametrize("family", LAYERS)
def test_heads_of_every_family_give_the_same_scores(tmp_path, family):
    """Also where scores are large, as after long training."""
    labels = np.array(["a", "b", "c", "d", "e"])
    for form, gold, read in (
        (sentence_adapter(), labels, read_pairs),
        (pos_adapter(), [list("abcdef")] * 5, read_words),
    ):
        network, inputs = network_of(tmp_path, family, form, gold)
        opened = (
            getattr(hf, CLASSES[type(network.head)])
            .from_pretrained(save_network(network, tmp_path / "saved"))
            .eval()
        )
        said, places, _ = read(network.encoder, inputs, np.arange(5), FAST)
        with torch.no_grad():
            theirs, (x, lengths) = opened(**said).logits, network(inputs, np.arange(5))
            ours = network.head(x, lengths) if gold is labels else network.head(x)
        if gold is not labels:
            theirs = theirs.flatten(0, 1)[torch.from_numpy(places)]
        assert ours.abs().max() > 3
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_two_layers_are_one_whatever_they_were(activation):
    wanted, inner, outer = nn.Linear(12, 5), nn.Linear(12, 12), nn.Linear(12, 5)
    with torch.no_grad():
        wanted.weight *= 9
        set_two_layers(inner, outer, wanted, activation)
        for size in (1e-3, 1.0, 5.0):
            x = size * torch.randn(300, 12)
            found = outer(getattr(nn.functional, activation)(inner(x)))
            torch.testing.assert_close(
                found, wanted(x), atol=2e-6 * float(wanted(x).abs().max()), rtol=0
            )
    with pytest.raises(InputError, match="13 labels: this architecture has room for"):
        set_two_layers(inner, nn.Linear(12, 13), nn.Linear(12, 13), activation)


def test_what_is_saved_is_a_checkpoint_again(tmp_path):
    """Its encoder can be measured, and taught further."""
    network, _ = network_of(tmp_path, "bert", sentence_adapter(), np.array(["a", "b"]))
    again = load_encoder(save_network(network, tmp_path / "saved"))
    assert again.headless and again.tokenizer.get_vocab() == network.encoder.tokenizer.get_vocab()
    for name, weights in network.encoder.model.base_model.state_dict().items():
        assert torch.equal(weights, again.model.base_model.state_dict()[name])


def test_what_transformers_has_no_form_for_is_refused_in_one_line(tmp_path):
    network, inputs = network_of(tmp_path, "bert", sentence_adapter(), np.array(["a", "b"]))
    with pytest.raises(
        InputError, match="over frozen layers is no model of transformers: fine-tune"
    ):
        save_network(
            new_network(network.encoder, inputs, sentence_adapter(), Feat(hidden=4, layers=1), 0),
            tmp_path / "no",
        )
    with pytest.raises(
        InputError, match="a parser is no model of transformers: save its encoder alone"
    ):
        save_network(replace(network, head=nn.Identity(), form=parsing_adapter()), tmp_path / "no")
    network, _ = network_of(tmp_path, "mpnet", sentence_adapter(), np.array(["a", "b"]))
    with pytest.raises(
        InputError, match="the head of mpnet in transformers has a form that is not known here"
    ):
        save_network(network, tmp_path / "no")
    assert not (tmp_path / "no").exists()

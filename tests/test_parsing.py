"""Parsing: the best tree against all trees, scores against a scorer of CoNLL-U lines, the parser
against loops, bad treebanks.
"""

import io
import itertools
import os
from pathlib import Path

import conllu
import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from xlingual_nb.errors import InputError
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.finetuning import answer_records, fit_network, new_network
from xlingual_nb.tasks.biaffine_parser import (
    HEAD_CUT_OFF,
    ParserHead,
    cut_trees,
    truncate_tree,
    parsing_adapter,
)
from xlingual_nb.tasks.zero_shot_parsing import TREE_READING, ParsingSpec, TreeRecords
from xlingual_nb.tasks.recipes import Feat, Parser, Tuning, parser_flops
from xlingual_nb.tasks.metrics import (
    Tree,
    attachment,
    best_heads,
    best_tree,
    branching_tree,
    score_trees,
    reverse_trees,
)
from xlingual_nb.text.formats import UNIVERSAL_TAGS, read_trees, tree_error
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, load_records
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "ud").is_dir(),
    reason="XLINGUAL_DATA names no folder with treebanks",
)


# --- the best tree


def is_tree(heads):
    """Every word comes to the root within as many steps as there are words."""
    at = list(range(1, len(heads) + 1))
    for _ in heads:
        at = [word and heads[word - 1] for word in at]
    return not any(at)


def all_trees(n):
    """Every way for n words to hang on one another or on the root, with exactly one root."""
    return [
        heads
        for heads in itertools.product(range(n + 1), repeat=n)
        if heads.count(0) == 1 and is_tree(heads)
    ]


TREES = {n: np.array(all_trees(n)) for n in range(1, 7)}


def test_there_are_as_many_trees_as_cayley_says():
    assert [len(TREES[n]) for n in range(1, 7)] == [n ** (n - 1) for n in range(1, 7)]


@given(
    st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([1.0, 1e3, 1e-3]), st.floats(-5, 5)
)
def test_the_best_tree_is_the_best_of_all(n, seed, scale, to_the_root):
    scores = scale * np.random.default_rng(seed).normal(size=(n + 1, n + 1))
    scores[:, 0] += scale * to_the_root  # many roots, or none but of need
    sums = scores[np.arange(1, n + 1), TREES[n]].sum(1)
    assert best_tree(scores) == TREES[n][sums.argmax()].tolist()


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_among_equals_any_best_tree_will_do(n, seed):
    """Whole numbers, so that many trees are equally good."""
    scores = np.random.default_rng(seed).integers(0, 3, (n + 1, n + 1)).astype(float)
    found = best_tree(scores)
    assert is_tree(found) and found.count(0) == 1
    assert (
        scores[np.arange(1, n + 1), found].sum()
        == scores[np.arange(1, n + 1), TREES[n]].sum(1).max()
    )


@pytest.mark.parametrize("n", [12, 40, 140])
def test_long_sentences_against_another_library(n):
    """networkx's arborescence, one root forced by trying each."""
    scores = np.random.default_rng(n).normal(size=(n + 1, n + 1))
    graph = networkx.DiGraph()
    for word, head in itertools.product(range(1, n + 1), range(n + 1)):
        if word != head:
            graph.add_edge(head, word, weight=scores[word, head])
    if n < 100:
        heads = {word: head for head, word in networkx.maximum_spanning_arborescence(graph).edges}
        assert best_heads(scores)[1:].tolist() == [heads[word] for word in range(1, n + 1)]
    found = best_tree(scores)
    assert is_tree(found) and found.count(0) == 1
    assert (
        scores[np.arange(1, n + 1), found].sum()
        <= scores[np.arange(1, n + 1), best_heads(scores)[1:]].sum()
    )


def test_what_is_barred_is_never_taken():
    scores = np.full((4, 4), -np.inf)
    scores[1, 0], scores[2, 1], scores[3, 2], scores[2, 3], scores[3, 0] = 1, 1, 1, 5, 4
    np.fill_diagonal(scores, -np.inf)
    assert best_heads(scores)[1:].tolist() == [0, 3, 0]


# --- scores


def lines(tree):
    return (
        "\n".join(
            "\t".join((str(i), "w", "_", tag, "_", "_", str(head), relation, "_", "_"))
            for i, (head, relation, tag) in enumerate(zip(tree.heads, tree.relations, tree.tags), 1)
        )
        + "\n\n"
    )


def scored_lines(gold, system):
    """An evaluation of two CoNLL-U texts, by another library's reader, word by word; relations
    without subtypes.
    """
    hits = []
    for wanted, given_ in zip(*(conllu.parse_incr(io.StringIO(text)) for text in (gold, system))):
        for a, b in zip(wanted, given_):
            if a["upos"] in {"PUNCT", "SYM"}:
                continue
            same = a["head"] == b["head"]
            hits.append((same, same and a["deprel"].split(":")[0] == b["deprel"].split(":")[0]))
    return dict(
        uas=sum(u for u, _ in hits) / max(1, len(hits)),
        las=sum(l for _, l in hits) / max(1, len(hits)),
    )


@st.composite
def two_trees(draw):
    n = draw(st.integers(1, 6))

    def tree():
        heads = draw(st.sampled_from(TREES[n].tolist()))
        return Tree(
            heads,
            draw(st.lists(st.sampled_from(["nsubj", "obj", "det"]), min_size=n, max_size=n)),
            draw(
                st.lists(st.sampled_from(["NOUN", "PUNCT", "SYM", "VERB"]), min_size=n, max_size=n)
            ),
        )

    return tree(), tree()


@given(st.lists(two_trees(), min_size=1, max_size=4))
def test_attachment_is_that_of_a_scorer_of_lines(pairs):
    gold, system = zip(*pairs)
    assert attachment(list(gold), list(system)) == pytest.approx(
        scored_lines("".join(map(lines, gold)), "".join(map(lines, system)))
    )


def test_words_that_were_not_parsed_do_not_count():
    gold = [Tree([2, 0, 2], ["nsubj", "root", "obj"], ["NOUN", "VERB", "NOUN"])]
    assert attachment(gold, [Tree([2, 0], ["nsubj", "obj"])]) == dict(uas=1.0, las=0.5)
    for wrong in ([], [Tree([0] * 4, [""] * 4)]):
        with pytest.raises(InputError, match="differ in number or length"):
            attachment(gold, wrong)


def test_floors_are_chains():
    gold = [Tree([0, 1, 2], ["a"] * 3, ["NOUN"] * 3), Tree([0], ["a"], ["NOUN"])]
    found = score_trees(Inputs((), gold), gold)
    assert (
        found == dict(las=1.0, uas=1.0, left=1.0, right=0.25)
        and is_tree(branching_tree(7, "left").heads)
        and is_tree(branching_tree(7, "right").heads)
    )


@given(two_trees())
def test_a_tree_read_from_the_end_is_the_same_tree(pair):
    tree, _ = pair
    turned, n = tree.reverse(), len(tree.heads)
    arcs = {(word, head) for word, head in enumerate(tree.heads, 1)}
    assert {
        (n + 1 - word, head and n + 1 - head) for word, head in enumerate(turned.heads, 1)
    } == arcs
    assert is_tree(turned.heads) and turned.tags == tree.tags[::-1]


# --- treebanks


def row(number, head, relation="dep", tag="NOUN"):
    return "\t".join((str(number), "w", "_", tag, "_", "_", str(head), relation, "_", "_"))


@pytest.mark.parametrize(
    "rows, said",
    [
        (
            [row(1, 0), row(2, 0)],
            "line 2: in the sentence that ends here words 1, 2 are roots: mend its heads",
        ),
        (
            [row(1, 2), row(2, 1), row(3, 0)],
            "line 3: in the sentence that ends here words 1, 2 go in a circle",
        ),
        ([row(1, 0), row(2, 3), row(3, 4), row(4, 2)], "words 2, 3, 4 go in a circle"),
        ([row(1, 2), row(2, 1)], "no word is the root"),
        ([row(1, 1)], "word 1 hangs on itself"),
        ([row(1, 0), row(2, 9)], "word 2 hangs on 9 of 2 words"),
        (
            [row("1-2", "_"), row(1, "1-2"), row(2, 0)],
            "line 2: word 1 hangs on '1-2': write the number of a word, or 0",
        ),
        (
            [row(1, "1.1"), row("1.1", "_"), row(2, 0)],
            r"line 1: word 1 hangs on '1\.1'.*empty nodes are no words",
        ),
        ([row(1, "_")], "word 1 hangs on '_'"),
        ([row(1, 0, "_")], "word 1 has no relation"),
        ([row(1, 0, tag="NN")], "is no universal part of speech"),
        (["# text = nothing"], "holds no words"),
    ],
)
def test_bad_treebanks_are_one_line(tmp_path, rows, said):
    (tmp_path / "bad.conllu").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=said) as error:
        read_trees(tmp_path / "bad.conllu")
    assert "\n" not in str(error.value) and "bad.conllu" in str(error.value)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_a_fault_is_found_in_what_is_no_tree_and_nowhere_else(heads):
    good = all(h <= len(heads) for h in heads) and heads.count(0) == 1 and is_tree(heads)
    assert (tree_error(heads) == "") == good


def test_ranges_and_empty_nodes_are_left_out_and_subtypes_cut(tmp_path):
    (tmp_path / "own.conllu").write_text(
        "# a\n"
        + "\n".join([row("1-2", "_"), row(1, 2, "nmod:poss"), row("1.1", "_"), row(2, 0, "root")])
        + "\n\n\n"
        + row(1, 0, "root")
    )
    first, second = read_trees(tmp_path / "own.conllu")
    assert (
        first["heads"] == [2, 0]
        and first["relations"] == ["nmod", "root"]
        and second["heads"] == [0]
    )


@real
def test_treebanks_of_the_data_folder_against_another_reader():
    from xlingual_nb.text.records import find_split_file
    from xlingual_nb.text.corpora import read_lines

    for source in ("ud/es-pud", "ud/hi-pud"):
        found = load_records(TREE_READING, source, "test")
        text = "\n".join(read_lines(find_split_file(TREE_READING, source, "test")))
        wanted = [[t for t in s if isinstance(t["id"], int)] for s in conllu.parse(text + "\n\n")]
        assert [r["heads"] for r in found] == [[t["head"] for t in s] for s in wanted]
        assert [r["relations"] for r in found] == [
            [t["deprel"].split(":")[0] for t in s] for s in wanted
        ]


# --- the parser


def sentences(count, seed, longest=7):
    """Random trees whose words say where their head is: to the left, to the right, nowhere."""
    rng, texts, firsts, gold = np.random.default_rng(seed), [], [], []
    for _ in range(count):
        n = int(rng.integers(1, longest))
        root = int(rng.integers(1, n + 1))
        heads = [0 if w == root else w + 1 if w < root else w - 1 for w in range(1, n + 1)]
        spelt = [
            [
                int(rng.integers(5, 15))
                if h == 0
                else int(rng.integers(15, 27))
                if h > w
                else int(rng.integers(27, 40))
            ]
            * int(rng.integers(1, 3))
            for w, h in enumerate(heads, 1)
        ]
        texts.append(sum(spelt, []))
        firsts.append(np.cumsum([0, *map(len, spelt[:-1])]))
        gold.append(
            Tree(
                heads,
                [
                    "root" if h == 0 else "right" if h > w else "left"
                    for w, h in enumerate(heads, 1)
                ],
                ["NOUN"] * n,
            )
        )
    return Inputs((Encoded.of(texts),), gold, Encoded.of(firsts), views=("any",))


@pytest.fixture
def tiny(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=2))


SMALL = Parser(12, 8, 0.0)


@pytest.mark.parametrize("tags", [0, 5])
def test_loss_and_answers_word_by_word(tags):
    """Every score by its definition, cross-entropies by hand, a sentence at a time."""
    torch.manual_seed(0)
    inputs = sentences(5, 0)
    head = ParserHead(Parser(12, 8, 0.0, tags), inputs, 6, 0.02, Tuning(dropout=0.0)).eval()
    for form in (head.arcs, head.relations):
        nn.init.normal_(form.weight)
    lengths = torch.tensor([len(tree.heads) + 1 for tree in inputs.gold])
    x = torch.randn(5, int(lengths.max()), 6)
    with torch.no_grad():
        arcs, relations, found = [], [], head.answers(x, lengths, inputs.gold)

    def bilinear(form, k, a, b):
        return torch.cat([a, torch.ones(1)]) @ form.weight[k] @ torch.cat([b, torch.ones(1)])

    for i, tree in enumerate(inputs.gold):
        n = len(tree.heads)
        words = [
            torch.cat(
                [x[i, k], head.tags.weight[0 if k == 0 else 1 + UNIVERSAL_TAGS.index("NOUN")]]
            )
            if tags
            else x[i, k]
            for k in range(n + 1)
        ]
        dependent, above, below, over = ([layer(w) for w in words] for layer in head.small)
        table = torch.tensor(
            [
                [
                    -torch.inf
                    if d == h
                    else float(bilinear(head.arcs, 0, dependent[d], above[h]).detach())
                    for h in range(n + 1)
                ]
                for d in range(n + 1)
            ]
        )

        def label(d, h):
            return torch.stack(
                [bilinear(head.relations, k, below[d], over[h]) for k in range(len(head.labels))]
            )

        for d, (h, relation) in enumerate(zip(tree.heads, tree.relations), 1):
            arcs.append(-table[d].log_softmax(0)[h])
            relations.append(-label(d, h).log_softmax(0)[head.number[relation]])
        sums = [sum(table[d, h] for d, h in enumerate(heads, 1)) for heads in TREES[n].tolist()]
        assert found[i].heads == TREES[n][int(torch.stack(sums).argmax())].tolist()
        assert found[i].relations == [
            head.labels[int(label(d, h).argmax())] for d, h in enumerate(found[i].heads, 1)
        ]
    torch.testing.assert_close(
        head.loss(x, lengths, inputs.gold),
        torch.stack(arcs).mean() + torch.stack(relations).mean(),
        atol=1e-4,
        rtol=1e-4,
    )


def test_a_lost_head_has_no_share_in_the_loss():
    torch.manual_seed(0)
    whole = Tree([2, 0, 2], ["a", "b", "a"], ["NOUN"] * 3)
    inputs = Inputs((), [whole])
    head = ParserHead(SMALL, inputs, 6, 0.02, Tuning(dropout=0.0))
    for form in (head.arcs, head.relations):
        nn.init.normal_(form.weight)
    x, lengths = torch.randn(1, 4, 6), torch.tensor([4])

    def lost(word):
        return Tree(
            [HEAD_CUT_OFF if i == word else h for i, h in enumerate(whole.heads)],
            whole.relations,
            whole.tags,
        )

    parts = [head.loss(x, lengths, [lost(word)]) for word in range(3)]
    torch.testing.assert_close(sum(parts) * 2 / 6, head.loss(x, lengths, [whole]))


def test_sentences_are_cut_by_pieces_in_training_and_by_words_in_evaluation(tiny):
    inputs = sentences(40, 3, longest=14)
    learning, _ = cut_trees(Parser(), tiny, inputs, Tuning(pieces=6, context=2), True)
    assert max(learning.texts[0].lengths) <= 6
    asked, _ = cut_trees(Parser(words=4), tiny, inputs, Tuning(pieces=6, context=2), False)
    for i, tree in enumerate(inputs.gold):
        ends, n = [*inputs.firsts[i][1:], len(inputs.texts[0][i])], len(tree.heads)
        fitting = [end for end in ends if end <= 6]
        assert (
            learning.gold[i] == truncate_tree(tree, len(fitting))
            and len(learning.texts[0][i]) == fitting[-1]
        )
        assert (
            len(asked.gold[i].heads)
            == len(asked.firsts[i])
            == min(n, 4, sum(end <= 22 for end in ends))
        )
    assert truncate_tree(Tree([3, 0, 2], ["a"] * 3, ["X"] * 3), 2) == Tree(
        [HEAD_CUT_OFF, 0], ["a"] * 2, ["X"] * 2
    )


@pytest.mark.parametrize(
    "settings",
    [
        Tuning(epochs=6, learning_rate=5e-3, dropout=0.0),
        Feat(hidden=12, layers=1, epochs=8, batch=16, learning_rate=1e-2),
    ],
)
def test_trees_are_learnt(tiny, settings):
    network, test = (
        fit_network(tiny, sentences(300, 0), sentences(40, 1), parsing_adapter(SMALL), settings),
        sentences(40, 2),
    )
    found = answer_records(network, test)
    assert all(is_tree(tree.heads) and tree.heads.count(0) == 1 for tree in found)
    scores = score_trees(test, found)
    assert (
        scores["las"]
        > (0.8 if isinstance(settings, Tuning) else 0.6)
        > max(scores["left"], scores["right"])
    )
    network.encoder.model.double()
    for part in network.parts:
        part.double()
    assert answer_records(network, test, budget=1) == answer_records(network, test)


def test_gold_tags_are_seen_by_a_parser_that_has_room_for_them(tiny):
    inputs = sentences(6, 0, longest=5)
    changed = Inputs(
        inputs.texts,
        [tree._replace(tags=["VERB"] * len(tree.tags)) for tree in inputs.gold],
        inputs.firsts,
        views=inputs.views,
    )
    for tags, seen in ((0, False), (4, True)):
        network = new_network(tiny, inputs, parsing_adapter(Parser(12, 8, 0.0, tags)), Tuning(), 0)
        for part in (*network.parts, network.head):
            part.eval()
        x, lengths = network(inputs, np.arange(6))
        different = [
            not torch.equal(a, b)
            for a, b in zip(
                network.head.vectors(x, inputs.gold), network.head.vectors(x, changed.gold)
            )
        ]
        assert different == [seen] * 4


def test_turned_inputs_keep_first_pieces_and_trees():
    inputs = sentences(9, 5)
    turned = reverse_trees(inputs)
    for text, back, firsts, tree, other in zip(
        inputs.texts[0], turned.firsts, inputs.firsts, inputs.gold, turned.gold
    ):
        assert text[::-1][back].tolist() == text[firsts][::-1].tolist() and other == tree.reverse()


# --- runs


def test_a_run_over_a_treebank_on_a_brought_checkpoint(tmp_path):
    tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=1)

    def line(i, word, head, relation, tag):
        return "\t".join((str(i), word, "_", tag, "_", "_", str(head), relation, "_", "_"))

    one = "\n".join(
        [
            line(1, "w7", 2, "nsubj", "NOUN"),
            line(2, "w20", 0, "root", "VERB"),
            line(3, "w8", 2, "obj:x", "NOUN"),
            line(4, "w5", 2, "punct", "PUNCT"),
        ]
    )
    other = "\n".join([line(1, "w21", 0, "root", "VERB"), line(2, "w9", 1, "obj", "NOUN")])
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.conllu").write_text("\n\n".join([one, other] * 4))

    def side(part):
        return LabelledRecords(
            "en", TreeRecords("parsing", f"file:{tmp_path}/{{part}}.conllu", part)
        )

    spec = ParsingSpec(
        ExternalCheckpointSpec(str(tmp_path / "tiny")),
        side("train"),
        side("dev"),
        (side("test"),),
        Tuning(epochs=15, batch=4, learning_rate=1e-2),
        SMALL,
    )
    store = Store(tmp_path / "runs")
    run([spec], store, progress=False)
    found = store.read(spec)
    assert (
        found["las"]["en"] == found["uas"]["en"] == 1.0
        and found["left"]["en"] == 0.6
        and found["right"]["en"] == 0.2
    )
    with pytest.raises(InputError, match="records of pos for parsing"):
        pos = LabelledRecords("en", RecordsSpec("pos", "micro/en", size=3))
        ParsingSpec(ExternalCheckpointSpec(str(tmp_path / "tiny")), pos, pos, (pos,))


@pytest.mark.parametrize("tags", [0, 5])
def test_plan_counts_what_the_parser_multiplies(tags):
    """As torch counts the products; of the relations, the constant beside the words' numbers
    included.
    """
    from torch.utils.flop_counter import FlopCounterMode

    parser, sentences, words, width = Parser(arc=6, relation=4, tags=tags), 3, 7, 8
    trees = [
        Tree([0, 1, 1, 1, 1, 1], ["root", "nsubj", "obj", "det", "amod", "obj"], ["NOUN"] * 6)
    ] * sentences
    head = ParserHead(parser, Inputs((), trees), width, 0.02, Tuning())
    x, lengths = torch.randn(sentences, words, width), torch.full((sentences,), words)
    with FlopCounterMode(display=False) as counter:
        head.loss(x, lengths, trees)
    wanted = sentences * words * parser_flops(parser, width, words, len(head.labels))
    assert counter.get_total_flops() == wanted

"""One door: a BERT without blocks, one with a single block and static vectors give every measure
what it asks for.
"""

import gzip
import io
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import save_file
from tokenizers import Tokenizer

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.measures.embeddings import (
    content_ids,
    hidden_states,
    position_similarity,
    token_pca,
    word_vectors,
)
from xlingual_nb.measures.perplexity import masked_nll, pooled_perplexity
from xlingual_nb.measures.probe import encode_text, probe
from xlingual_nb.measures.remarks import remarks
from xlingual_nb.measures.retrieval import multilinguality
from xlingual_nb.models.checkpoints import Checkpoint, load_checkpoint, tiny_checkpoint
from xlingual_nb.models.encoders import Encoder, load_encoder, token_id_range
from xlingual_nb.models.configs import Tagging
from xlingual_nb.models.static_vectors import (
    StaticVectors,
    load_static,
    load_vector_file,
    save_static,
    word_tokenizer,
)
from xlingual_nb.tasks.bilstm_crf import first_subword_vectors, predict, span_f1, train_tagger
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
V, H = 40, 16
LANGUAGES = [dict(name="en"), dict(name="enfake", token_offset=V, inverted=True)]
KINDS = ["static", "no blocks", "one block"]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same 2 x 40 tokens in all three; the spaces of the two languages half agree, so that no
    score is 0 or 1.
    """
    made = {kind: tmp_path_factory.mktemp("encoders") / kind for kind in KINDS}
    for depth, kind in enumerate(KINDS[1:]):
        tiny_checkpoint(made[kind], V, LANGUAGES, num_hidden_layers=depth, seed=depth)
        model = hf.AutoModelForMaskedLM.from_pretrained(made[kind])
        with torch.no_grad():
            table = model.get_input_embeddings().weight
            table *= 5
            table[V:] = table[:V] + 1.5 * table[V:]
        model.save_pretrained(made[kind])
    rng = np.random.default_rng(0)
    table = rng.normal(size=(V, H))
    table = np.concatenate([table, table + 0.9 * rng.normal(size=(V, H))]).astype(np.float32)
    save_static(
        made["static"],
        table,
        Tokenizer.from_file(str(made["no blocks"] / "tokenizer.json")),
        LANGUAGES,
    )
    return made


@pytest.fixture(params=[(kind, device) for kind in KINDS for device in DEVICES], ids=" ".join)
def encoder(request, folders):
    return load_encoder(folders[request.param[0]], request.param[1])


def plain(encoder, ids):
    """All layers of one sentence, (tokens, H) each: looked up; by BERT's formula for layer 0; by
    the library above.
    """
    if isinstance(encoder, StaticVectors):
        return [np.stack([encoder.vectors[i].cpu().numpy() for i in ids])]
    full, w = (
        [2, *ids, 3],
        {name: p.double().cpu() for name, p in encoder.model.bert.embeddings.state_dict().items()},
    )
    words, places, types = (
        w[f"{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    x = words[full] + places[: len(full)] + types[0]
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-12).sqrt()
    layers = [x * w["LayerNorm.weight"] + w["LayerNorm.bias"]]
    if encoder.depth:
        out = encoder.model(torch.tensor([full], device=encoder.device), output_hidden_states=True)
        layers += [h[0] for h in out.hidden_states[1:]]
    return [layer.double().cpu().numpy()[1:-1] for layer in layers]


def near(encoder, cpu=1e-5, cuda=1e-4):
    return cuda if encoder.device.type == "cuda" else cpu


def sentences(n=30, seed=0, longest=9):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, V, rng.integers(1, longest)).tolist() for _ in range(n)]


def pair(n=30, seed=0):
    text = sentences(n, seed)
    return Encoded.of(text), Encoded.of([w + V for w in s][::-1] for s in text)


# --- what an encoder is


def test_all_are_encoders(encoder):
    assert isinstance(encoder, Encoder) and isinstance(encoder, (Checkpoint, StaticVectors))
    assert (encoder.width, encoder.vocabulary) == (H, 2 * V) and list(encoder.views) == [
        "en",
        "enfake",
    ]
    assert token_id_range(encoder, "en") == (0, V) and token_id_range(encoder, "enfake") == (
        V,
        2 * V,
    )
    with pytest.raises(InputError, match="en, enfake"):
        encoder.view("de")
    assert list(content_ids(encoder, "en")) == list(range(5, V))
    assert list(content_ids(encoder, "enfake")) == list(range(V + 5, 2 * V))


def test_what_does_not_exist_is_none(folders):
    static, bert = (load_encoder(folders[kind]) for kind in ("static", "one block"))
    for name in ("cls", "sep", "mask", "pad", "model", "head", "positions"):
        assert getattr(static, name) is None and getattr(bert, name) is not None
    assert not isinstance(object(), Encoder)


def test_hidden_states_one_sentence_at_a_time(encoder):
    for view, text in zip(("en", "enfake"), pair()):
        states = hidden_states(encoder, text, view, range(encoder.depth + 1), budget=30)
        assert set(states.vectors) == set(range(encoder.depth + 1)) and states.truncated == 0
        for i, ids in enumerate(text):
            for layer, expected in enumerate(plain(encoder, ids.tolist())):
                np.testing.assert_allclose(
                    states.sentence(layer, i).cpu(), expected, atol=near(encoder)
                )
    with pytest.raises(InputError, match=f"layers 0 .embeddings. to {encoder.depth}"):
        hidden_states(encoder, text, "enfake", encoder.depth + 1)
    with pytest.raises(InputError, match="token id 5"):
        hidden_states(encoder, Encoded.of([[5]]), "enfake", 0)


def test_static_sentences_are_never_cut(folders):
    long = Encoded.of([np.full(5000, 7)])
    assert hidden_states(load_encoder(folders["static"]), long, "en", 0).truncated == 0
    assert hidden_states(load_encoder(folders["no blocks"]), long, "en", 0).truncated == 1


# --- the measures


def cosines(A, B):
    A, B = (
        X / np.linalg.norm(X, axis=1, keepdims=True)
        for X in (np.asarray(A, float), np.asarray(B, float))
    )
    return A @ B.T


def hit_rate(A, B):
    return np.mean(cosines(A, B).argmax(1) == np.arange(len(A)))


def score_by_loops(encoder, n):
    """µ and its parts from the formulas (D section 2.2.1), vectors one sentence at a time."""
    en, fake = ([plain(encoder, ids.tolist()) for ids in text] for text in pair(n))
    words = range(5, V)
    result = {}
    for name, layer in (
        ("lower", 0),
        ("upper", encoder.depth and max(1, round(encoder.depth * 2 / 3))),
    ):
        means = [[layers[layer].mean(0) for layers in side] for side in (en, fake)]
        alone = [[plain(encoder, [w + offset])[layer][0] for w in words] for offset in (0, V)]
        for key, (A, B) in (("rho", means), ("tau", alone)):
            result[f"{key}_{name}"] = (hit_rate(A, B) + hit_rate(B, A)) / 2
        found = right = wanted = 0
        for a, b in zip(en, fake):
            S = cosines(a[layer], b[layer])
            edges = [(i, j) for i, j in enumerate(S.argmax(1)) if S[:, j].argmax() == i]
            right += sum(i + j == len(S) - 1 for i, j in edges)
            found += len(edges)
            wanted += len(S)
        result[f"f1_{name}"] = 2 * right / (found + wanted)
    return result | dict(mu=np.mean([result[key] for key in result if key[0] in "rt"]))


def test_multilinguality_by_loops(encoder):
    ours, theirs = multilinguality(encoder, *pair(30)), score_by_loops(encoder, 30)
    assert {key: ours[key] for key in theirs} == pytest.approx(
        theirs, abs=near(encoder, 1e-6, 0.05)
    )
    assert 0.05 < ours["mu"] < 0.99
    assert (ours["sentences"], ours["words"], ours["layer_upper"]) == (30, V - 5, encoder.depth)


def test_probe_by_loops(encoder):
    text = dict(zip(("en", "enfake"), pair(30)))
    words = {"en": Encoded.of([[5], [6, 7]]), "enfake": Encoded.of([[V + 5], [V + 7, V + 6]])}
    table = probe(encoder, text, words)
    for measure, corpora in (("rho", text), ("tau", words)):
        rows = table[table.measure == measure].set_index(["source", "target", "layer"])["value"]
        assert len(rows) == 2 * (encoder.depth + 1)
        layers = {
            name: [plain(encoder, ids.tolist()) for ids in corpus]
            for name, corpus in corpora.items()
        }
        for (a, b, layer), value in rows.items():
            A, B = ([found[layer].mean(0) for found in layers[name]] for name in (a, b))
            assert value == pytest.approx(hit_rate(A, B), abs=near(encoder, 1e-6, 0.05))
    assert (table.measure == "perplexity").sum() == (2 if encoder.head else 0)


def test_perplexity_is_the_librarys_loss_or_refused(encoder):
    text = pair(30)[0]
    if encoder.head is None:
        for measure in (
            lambda: masked_nll(encoder, text, "en"),
            lambda: pooled_perplexity(encoder, dict(en=text)),
        ):
            with pytest.raises(InputError, match="no masked-LM head"):
                measure()
        assert remarks(encoder, dict(en=text)) == ["no perplexity: there is no masked-LM head"]
        return
    total = 0
    for ids in text:
        labels = torch.tensor([[-100, *ids.tolist(), -100]], device=encoder.device)
        inputs = torch.tensor([[2, *[4] * len(ids), 3]], device=encoder.device)
        total += encoder.model(inputs, labels=labels).loss.item() * len(ids)
    assert masked_nll(encoder, text, "en", rate=1) == (
        pytest.approx(total, rel=1e-4),
        len(text.ids),
    )
    assert remarks(encoder, dict(en=text)) == []


def test_the_map_of_words_and_the_positions(encoder):
    table = token_pca(encoder)
    assert len(table) == 2 * (V - 5) and table["token"].tolist()[:2] == ["w5", "w6"]
    points = np.stack(
        [plain(encoder, [i])[0][0] for view in ("en", "enfake") for i in content_ids(encoder, view)]
    )
    points = points - points.mean(0)
    top = np.linalg.eigh(points.T @ points)[0][-2:].sum()
    assert (table[["x", "y"]].to_numpy() ** 2).sum() == pytest.approx(top, rel=1e-3)
    if encoder.positions is None:
        with pytest.raises(InputError, match="no learned position"):
            position_similarity(encoder)
    else:
        assert position_similarity(encoder).shape == (24, 24)


# --- a tagger


def tagged(n, seed):
    """Words 5 to 9 are names; every word is a token. Ids, places of the words, tags."""
    text = sentences(n, seed, longest=12)
    tags = [["B-PER" if w < 10 else "O" for w in s] for s in text]
    return Encoded.of(text), Encoded.of(range(len(s)) for s in text), tags


def test_features_are_the_vectors_of_first_pieces(encoder):
    ids, _, _ = tagged(20, 3)
    firsts = Encoded.of(np.arange(0, n, 2) for n in ids.lengths)
    for layer in (None, 0):
        read = first_subword_vectors(encoder, ids, firsts, "en", layer)
        expected = [plain(encoder, s.tolist())[-1 if layer is None else 0][::2] for s in ids]
        np.testing.assert_allclose(read.vectors.cpu(), np.concatenate(expected), atol=near(encoder))


def test_a_tagger_learns_on_any_encoder(encoder):
    (ids, firsts, tags), (dev_ids, dev_firsts, wanted) = tagged(200, 1), tagged(50, 2)
    train, dev = (
        first_subword_vectors(encoder, ids, firsts, "en"),
        first_subword_vectors(encoder, dev_ids, dev_firsts, "en"),
    )
    settings = Tagging(hidden=16, layers=1, epochs=30, learning_rate=1e-2, dropout=0.0)
    assert (
        span_f1(wanted, predict(train_tagger(train, tags, dev, wanted, settings), dev))["f1"] > 0.95
    )


def test_long_sentences_need_no_windows_in_static_vectors(folders):
    static, ids = load_encoder(folders["static"]), np.random.default_rng(0).integers(5, V, 700)
    read = first_subword_vectors(
        static, Encoded.of([ids, ids[:1]]), Encoded.of([range(0, 700, 7), [0]]), "en"
    )
    assert torch.equal(read.vectors, static.vectors[[*ids[::7], ids[0]]])


# --- unknown words


def test_an_unknown_word_leaves_a_sentence_where_its_known_words_put_it(tmp_path):
    (tmp_path / "x.vec").write_text("3 2\nla 0.5 -1\ncasa 0.25 8\nvieja 3 1\n", encoding="utf-8")
    space = load_vector_file(tmp_path / "x.vec")
    assert space.vectors[-1].tolist() == [0, 0] and list(content_ids(space, "es")) == [0, 1, 2]
    known, mixed = (
        {
            "es": encode_text(space, text, "es"),
            "en": encode_text(space, ["vieja", "casa", "la casa"], "en"),
        }
        for text in (["vieja", "casa la", "la"], ["vieja nueva nueva", "una casa la", "la x"])
    )
    assert probe(space, known).equals(probe(space, mixed)) and mixed["es"][0].tolist() == [2, 3, 3]
    told = remarks(space, mixed, {"es": encode_text(space, ["la", "nueva", "casa", "vieja"], "es")})
    assert told[:2] == ["unknown tokens: 50.0% of es", "unknown dictionary words: 25.0% of es"]
    assert "part punctuation off" in told[2] and len(told) == 4 and len(remarks(space, known)) == 1


def test_a_language_of_which_nothing_is_known_is_one_line(tmp_path):
    (tmp_path / "x.vec").write_text("3 2\nla 0.5 -1\ncasa 0.25 8\nvieja 3 1\n", encoding="utf-8")
    space = load_vector_file(tmp_path / "x.vec")
    texts = {
        name: encode_text(space, text, name)
        for name, text in dict(es=["la"], en=["the house", "the"]).items()
    }
    for given, what in ((({"es": texts["es"]}, texts), "dictionary words"), ((texts,), "tokens")):
        with pytest.raises(
            InputError, match=f"x.vec knows none of the {what} of 'en': give"
        ) as error:
            remarks(space, *given)
        assert "\n" not in str(error.value)


def test_unknown_words_are_counted_in_any_language(encoder):
    text = {view: encode_text(encoder, ["w5 new", "w6 w7"], view) for view in encoder.views}
    assert text["enfake"][0].tolist() == [1, V + 5]
    assert remarks(encoder, text)[0] == "unknown tokens: 25.0% of en, 25.0% of enfake"


@pytest.mark.parametrize("unknown", ["[UNK]", "<unk>"])
def test_a_file_may_have_a_vector_for_unknown_words(tmp_path, unknown):
    (tmp_path / "x.vec").write_text(f"2 2\n{unknown} 0.5 -1\ncasa 0.25 8\n", encoding="utf-8")
    space = load_vector_file(tmp_path / "x.vec")
    assert space.vocabulary == 2 and list(content_ids(space, "es")) == [1]
    assert list(encode_text(space, ["casa vieja"], "es")[0]) == [1, 0]


# --- folders


def test_a_folder_holds_what_was_saved(tmp_path):
    table = torch.randn(4, 3, dtype=torch.float16)
    tokenizer = word_tokenizer(["a", "b", "Ω", "[UNK]"])
    for how in (table, table.numpy(), table.tolist()):
        space = load_encoder(save_static(tmp_path / "space", how, tokenizer))
        assert (
            isinstance(space, StaticVectors)
            and torch.equal(space.vectors, table.float())
            and space.views == {}
        )
        assert space.tokenizer(["Ω c a"])["input_ids"] == [[2, 3, 0]]
    vectors = word_vectors(space, [2, 0], "el", 0)[0]
    assert torch.equal(vectors, table.float()[[2, 0]])


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def drop(name):
    return lambda folder: (folder / name).unlink()


def table(values, name="vectors"):
    return lambda folder: save_file({name: torch.as_tensor(values)}, folder / "vectors.safetensors")


FAR = '{"model_type": "xlingual-static", "xlingual": {"languages": [{"name": "x", "token_offset": 80}]}}'


@pytest.mark.parametrize(
    "spoil, says",
    [
        (drop("vectors.safetensors"), "no [*].safetensors"),
        (write("vectors.safetensors", "123"), "cut short"),
        (
            lambda folder: (folder / "vectors.safetensors").rename(folder / "x.safetensors"),
            "no table `vectors`",
        ),
        (table([[1.0]], "other"), "no table `vectors`"),
        (table([1.0, 2]), r"shape \(2,\)"),
        (table(np.ones((2 * V - 1, H))), f"id {2 * V - 1} for {2 * V - 1} vectors"),
        (table(np.ones((2 * V, 3))), "files of one space"),
        (
            table(np.where(np.eye(2 * V, H), np.nan, 0)),
            f"{H} numbers of vectors are NaN or infinite",
        ),
        (write("tokenizer.json", "{}"), "does not open"),
        (drop("tokenizer.json"), "has no tokenizer"),
        (write("config.json", FAR), "'x' has token ids beyond"),
    ],
)
def test_a_spoilt_folder_is_one_clear_line(folders, tmp_path, spoil, says):
    for file in folders["static"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert load_encoder(tmp_path).depth == 0
    spoil(tmp_path)
    with pytest.raises(InputError, match=says) as refusal:
        load_encoder(tmp_path)
    assert str(tmp_path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_is_no_encoder(tmp_path, folders):
    (tmp_path / "x.txt").write_text("")
    for name, says in (
        ("x.txt", "neither a folder nor"),
        ("none.vec", "is not there"),
        ("none", "not a folder"),
    ):
        with pytest.raises(InputError, match=says):
            load_encoder(tmp_path / name)
    for text in ("{", "[1]"):
        (tmp_path / "config.json").write_text(text)
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(InputError, match="not JSON"):
            load_encoder(tmp_path)
    for opener in (load_encoder, load_static):
        with pytest.raises(InputError, match="tpu9"):
            opener(folders["static"], "tpu9")


# --- the command line


def xlingual(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(list(map(str, arguments)))
        except SystemExit as end:
            assert not end.code, err.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("name", ["x.vec", "x.vec.gz", "x.bin", "static", "bert"])
def test_probe_on_the_command_line(tmp_path, name):
    """English words and Spanish ones with nearly the same vectors: every sentence finds its own."""
    rng = np.random.default_rng(0)
    words, table = (
        [f"{letter}{i}" for letter in "wv" for i in range(5, 25)],
        rng.normal(size=(20, 8)),
    )
    table = np.float32(np.concatenate([table, table + 0.01]))

    def row(r):
        return r.tobytes() if name == "x.bin" else " ".join(map(str, r)).encode() + b"\n"

    rows = [f"{word} ".encode() + row(r) for word, r in zip(words, table)]
    if name == "static":
        save_static(
            tmp_path / name, np.r_[table, np.zeros((1, 8))], word_tokenizer([*words, "[UNK]"])
        )
    elif name == "bert":
        tiny_checkpoint(tmp_path / name, 25, num_hidden_layers=0)
    else:
        (tmp_path / name).write_bytes(
            (gzip.compress if name.endswith("gz") else bytes)(b"40 8\n" + b"".join(rows))
        )
    text = [rng.choice(20, 4, replace=False) + 5 for _ in range(10)]
    for language, letter in (("en", "w"), ("es", "w" if name == "bert" else "v")):
        (tmp_path / f"{language}.txt").write_text(
            "\n".join(" ".join(f"{letter}{w}" for w in s) for s in text)
        )
    (tmp_path / "fr.txt").write_text("\n".join("nouveau w5" for _ in text))
    texts = [f"--text={language}={tmp_path / language}.txt" for language in ("en", "es")]
    said = xlingual("probe", tmp_path / name, *texts, "--out", tmp_path / "out.csv")
    assert (
        "rho en>es" in said
        and "unknown" not in said
        and ("no perplexity" in said) == (name != "bert")
    )
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1:3] == ["rho,en,es,0,1.0,10", "rho,es,en,0,1.0,10"] and len(lines) == (
        5 if name == "bert" else 3
    )
    assert "unknown tokens: 50.0% of fr" in xlingual(
        "probe", tmp_path / name, texts[0], f"--text=fr={tmp_path}/fr.txt"
    )


def test_a_checkpoint_without_a_mask_token_is_still_refused(folders, tmp_path):
    for file in folders["one block"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"mask_token": "[MASK]"', '"mask_token": null'))
    with pytest.raises(InputError, match="no mask token"):
        load_encoder(tmp_path)
    assert isinstance(load_checkpoint(folders["one block"]), Checkpoint)

"""Nothing that runs is left out: each function of ours that a profiler sees in a maker is found by
reading, too.
"""

import ast
import importlib
import pkgutil
import sys
import threading
from functools import cache
from pathlib import Path

import pytest
import torch

# loaded now: a profiler slows imports
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

import xlingual_nb
from xlingual_nb.measures.multilinguality import FitSpec, MeasureSpec
from xlingual_nb.measures.language_erasure import IdentityClassesSpec, IdentitySpec
from xlingual_nb.measures.masked_language import MaskedLanguageSpec
from xlingual_nb.measures.order import OrderSpec
from xlingual_nb.measures.subword_overlap import SeenSpec
from xlingual_nb.measures.replaced_perplexity import ReplacedPerplexitySpec
from xlingual_nb.measures.shift_translation import ShiftSpec
from xlingual_nb.measures.trajectories import TranslationSpec
from xlingual_nb.measures.word_classes import WordClassesSpec
from xlingual_nb.measures.word_retrieval import WordFloorsSpec, WordSpec
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.vecmap import SelfLearning
from xlingual_nb.models.configs import (
    FineTuning,
    Glove,
    LinearTagging,
    Readout,
    Shape,
    Tagging,
    Training,
    Word2Vec,
)
from xlingual_nb.models.spaces import SpaceSpec
from xlingual_nb.runs.code_fingerprint import reached_code
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.stages import declared_stages, stage_code
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.zero_shot_classification import DocumentRecords, SentencesSpec
from xlingual_nb.tasks.zero_shot_parsing import ParsingSpec, TreeRecords
from xlingual_nb.tasks.zero_shot_tagging import TunedTagsSpec
from xlingual_nb.tasks.baselines import BagsSpec, NliFloorsSpec
from xlingual_nb.tasks.nli import FrozenNliSpec, NliSpec
from xlingual_nb.tasks.language_identification import LanguageIdSpec, LanguageRecords
from xlingual_nb.tasks.sequence_labelling import NerSpec, PosSpec
from xlingual_nb.tasks.recipes import Bag, Feat, Parser, Tuning
from xlingual_nb.tasks.shifted_nli import ShiftedNliSpec
from xlingual_nb.tasks.concept_erasure import TakenOutSpec
from xlingual_nb.text.records import LabelledRecords, RecordsSpec
from xlingual_nb.text.dictionaries import Dictionary
from xlingual_nb.text.vocabularies import PretrainedVocabularySpec, TokenizerSpec
from xlingual_nb.text.casing import LowercasingSpec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.tokenizers import SPECIALS

torch.set_num_threads(1)
LOADED = AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining
GROUND = ("xlingual_nb.runs.", "xlingual_nb.errors")  # handed to the makers: the store, progress


@cache
def tops(file: str) -> list[tuple]:
    """(first line, last line, name) of each definition at the top of a file, told by its syntax
    tree alone.
    """
    found = []
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        names = (
            [node.name]
            if hasattr(node, "name")
            else [t.id for t in targets if isinstance(t, ast.Name)]
        )
        found += [(first, node.end_lineno, name) for name in names]
    return found


class Profiler:
    """Notes {maker: (module, top-level definition) of each function of ours that ran inside it}.

    What the ground floor calls is left out (it hands the maker the store and progress), and so is
    what imports run.
    """

    OURS = ("xlingual_nb", "test_call_graph")

    def __init__(self, **makers):
        self.codes, self.ran = (
            {make.__code__: name for name, make in makers.items()},
            {name: set() for name in makers},
        )
        self.now, self.aside = [], threading.local()
        # most of what is called is none of ours, and known by its number, which needs no hash
        self.foreign = {}

    def __call__(self, frame, event, _):
        code = frame.f_code
        if id(code) in self.foreign or event not in ("call", "return"):
            return
        module, calls = frame.f_globals.get("__name__", ""), event == "call"
        if module.split(".")[0] not in self.OURS and code.co_name != "<module>":
            self.foreign[id(code)] = code  # kept, so that the number is not used again
            return
        depth = getattr(self.aside, "depth", 0)
        if code in self.codes and calls:
            self.now.append((self.codes[code], depth))
            depth = self.aside.depth = 0
        elif code in self.codes:
            self.aside.depth = self.now.pop()[1]
        if code.co_name == "<module>" or module.startswith(GROUND):
            self.aside.depth = depth + (1 if calls else -1)
        elif calls and self.now and not depth and code.co_filename[0] != "<":
            names = [
                n
                for first, last, n in tops(code.co_filename)
                if first <= code.co_firstlineno <= last
            ]
            self.ran[self.now[-1][0]].add((module, names[-1] if names else code.co_qualname))

    def __enter__(self):
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)


def text(language="en", part="train", sentences=40, transforms=(), **more):
    given = dict(sentences=sentences, vocabulary=96) | more
    return CorpusSpec(f"micro/{language}", part, tuple(given.items()), transforms)


def labelled(task, language, part, size=12, **more):
    return LabelledRecords(language, RecordsSpec(task, f"micro/{language}", part, size, **more))


EN, ES, DEV, DEV_ES = text(), text("es"), text(part="dev", sentences=12), text("es", "dev", 12)
SHAPE, TRAINING = Shape(2, 16, 1, 32, 24), Training(1, 8, 1e-2, 1)
WORDS, PIECES = TokenizerSpec(EN, 101, "words"), TokenizerSpec(EN, 90, "wordpiece", (ES,))
TWIN = Language("en", EN), Language("enfake", EN, ("enfake", "permute(0.5)"))
D = PretrainSpec(TWIN, WORDS, SHAPE, TRAINING, lang_pos=True, shift_special=True, snapshots=(50,))
K = PretrainSpec(
    (Language("en", EN), Language("es", ES)),
    PIECES,
    SHAPE,
    TRAINING,
    inputs="pairs",
    nsp=True,
    markers=True,
    whole_words=True,
    exponent=0.7,
)
BACK = Language("back", EN, ("half(1)", "enfake(0.5)", "inv_order"))
HALVES = PretrainSpec(
    (Language("en", EN, ("half(0)",)), BACK), WORDS, SHAPE, TRAINING, masking="no_random"
)
DISGUISED = [
    text(transforms=("unicode_shift",)),
    text(transforms=("unigram(1)",)),
    text("ru", scramble=0.5, cognates_with="en", cognates=0.3),
]
NLI, NLI_TEST, NLI_ES = (
    labelled("nli", *of) for of in (("en", "train"), ("en", "test"), ("es", "test"))
)
POS, POS_DEV = (labelled("pos", "en", part) for part in ("train", "dev"))
NER, NER_DEV, NER_ES = (
    labelled("ner", *of) for of in (("en", "train"), ("en", "dev"), ("es", "test"))
)
VECTORS = EmbedSpec(D.languages, D.tokenizer, Glove(epochs=1), size=4, window=2)
ALONE = tuple(
    EmbedSpec((language,), WORDS, Glove(epochs=1), 4, seed=seed)
    for seed, language in enumerate(TWIN)
)
SPACES = tuple(
    SpaceSpec(ALONE, fit, min_count=1, nearest=1, learning=SelfLearning(rounds=2))
    for fit in ("vecmap", "nothing")
)
QUICK, MIXED = (
    Tuning(1, 6, 1e-3, freeze=0, pieces=6, context=3),
    Feat(1, 4, 2, 6, pieces=6, context=3),
)
TEXTS, TREES = (
    LabelledRecords("en", kind(task, "micro/en", size=9))
    for kind, task in ((DocumentRecords, "documents"), (TreeRecords, "parsing"))
)
MANY = LanguageRecords("langid", "micro/en+es", size=9)
SPECS = [
    *DISGUISED,
    *(TokenizerSpec(EN, size, kind) for kind, size in (("unigram", 60), ("characters", 40))),
    MeasureSpec(D, DEV),
    MeasureSpec(D, DEV, percent=50, words="all", sentences=9),
    TranslationSpec(D, percent=50),
    WordSpec(
        K,
        ("en", "es"),
        (EN, ES),
        Dictionary("micro", "even", "each"),
        unseen="miss",
        similarity="csls",
    ),
    WordSpec(
        D,
        ("en", "enfake"),
        (EN, EN),
        Dictionary("same", translations="first"),
        "bare",
        "alone",
        centred=True,
    ),
    ShiftSpec(K, ("en", "es"), (DEV, DEV_ES), layers=(1,), alphas=(0.0, 1.0)),
    ShiftSpec(D, ("en", "enfake"), (DEV, DEV), layers=(0,), alphas=(1.0,), along="orthogonal"),
    ShiftSpec(D, ("en", "enfake"), (DEV, DEV), (), (0,), (1.0,), mean_of="sentences"),
    ShiftedNliSpec(
        K,
        NLI,
        NLI_TEST,
        ((NLI_TEST, NLI_TEST), (NLI_ES, NLI_ES)),
        1,
        (0.0, 1.0),
        FineTuning(1, 6, 1e-3),
    ),
    IdentitySpec(K, ("en", "es"), (DEV, DEV_ES)),
    LowercasingSpec(PIECES, (NLI, NLI_ES)),
    WordClassesSpec(
        WordSpec(K, ("en", "es"), (EN, ES), Dictionary("micro", "even")),
        (labelled("pos", "en", "train").records,),
    ),
    MeasureSpec(HALVES, DEV, train_text="seen", words="none"),
    MeasureSpec(K, DEV, other=DEV_ES, words="dictionary"),
    *(
        labelled(task, "en", "dev", transforms=("unicode_shift",)).records
        for task in ("ner", "nli")
    ),
    NliSpec(K, NLI, ((NLI_ES, NLI_ES), (NLI_TEST, NLI_ES)), FineTuning(1, 6, 1e-3)),
    NliSpec(D, NLI, ((NLI_TEST, NLI_TEST),), FineTuning(1, 6, 1e-3, head="siamese")),
    NliFloorsSpec(NLI, ((NLI_ES, NLI_ES), (NLI_TEST, NLI_ES)), NLI_TEST),
    *(
        EmbedSpec(D.languages, D.tokenizer, method, size=4, window=2)
        for method in (Glove(epochs=1), Word2Vec(epochs=1))
    ),
    MeasureSpec(VECTORS, DEV),
    FrozenNliSpec(VECTORS, NLI, NLI_TEST, ((NLI_TEST, NLI_TEST),), Readout("mean", epochs=1)),
    WordSpec(VECTORS, ("en", "enfake"), (EN, EN), Dictionary("same")),
    *SPACES,
    PretrainedVocabularySpec(),
    WordFloorsSpec(WordSpec(K, ("en", "es"), (EN, ES), Dictionary("micro", "odd"))),
    FitSpec(HALVES, (DEV, DEV)),
    OrderSpec(("en", "es"), (DEV, DEV_ES)),
    OrderSpec(("en", "es"), (DEV, DEV_ES), K, words="spaces"),
    OrderSpec(("en", "es"), (NLI_TEST.records, NLI_ES.records), K),
    MaskedLanguageSpec(K, ("en", "es"), (DEV, DEV_ES)),
    ReplacedPerplexitySpec(
        PretrainSpec(TWIN, WORDS, SHAPE, TRAINING, "knn", neighbours=SPACES[0]), DEV
    ),
    FrozenNliSpec(D, NLI, NLI_TEST, ((NLI_TEST, NLI_TEST),), Readout(hidden=4, epochs=1)),
    FrozenNliSpec(K, NLI, NLI_TEST, ((NLI_ES, NLI_ES),), Readout("mean", epochs=1, layer=0)),
    FrozenNliSpec(
        K,
        NLI,
        NLI_TEST,
        ((NLI_ES, NLI_ES),),
        Readout("mean", epochs=1),
        mapped=(WordFloorsSpec(WordSpec(K, ("en", "es"), (EN, ES), Dictionary("micro", "odd"))),),
    ),
    *(
        NerSpec(
            model,
            NER,
            NER_DEV,
            (NER_ES, LabelledRecords("back", NER_DEV.records)),
            Tagging(8, 1, 2, 1, 6, scheme=scheme),
        )
        for model, scheme in ((K, "bioul"), (HALVES, "bio"))
    ),
    PosSpec(
        D,
        POS,
        POS_DEV,
        (LabelledRecords("enfake", POS_DEV.records),),
        LinearTagging((1e-1, 1e-2), 3),
    ),
    *(
        TunedTagsSpec(D, *of, settings)
        for of in ((POS, POS_DEV, (POS_DEV,)), (NER, NER_DEV, (NER_DEV,)))
        for settings in (QUICK, MIXED)
    ),
    *(
        SentencesSpec(D, texts, texts, (texts,), settings)
        for texts in (TEXTS, NLI)
        for settings in (QUICK, MIXED)
    ),
    ParsingSpec(
        HALVES,
        TREES,
        TREES,
        (TREES, LabelledRecords("back", TREES.records)),
        QUICK,
        Parser(4, 4, tags=2),
    ),
    LanguageIdSpec(D, LabelledRecords("all", MANY), (LabelledRecords("all", MANY),), Bag(epochs=1)),
    SeenSpec(PIECES, TEXTS, (TEXTS,)),
    SeenSpec(D, POS, (POS_DEV,)),
    *(
        BagsSpec(PIECES, of, of, (test,))
        for of, test in ((TEXTS, TEXTS), (NLI, NLI_ES), (NER, NER_ES))
    ),
    BagsSpec(D, POS, POS_DEV, (POS_DEV,)),
    IdentityClassesSpec(IdentitySpec(K, ("en", "es"), (DEV, DEV_ES), layers=(1,))),
    *(
        TakenOutSpec(K, of, ((of, of), (other, other)), 1, LinearTagging((1e-1,), 3))
        for of, other in ((NLI, NLI_ES), (NER, NER_ES))
    ),
]


BOOKS = dict(GEN="light", MAT="bread")
VERSES = [
    f"{book}.1.{i}\t{w} one. And {w} two: so it was.\n"
    for book, w in BOOKS.items()
    for i in range(1, 8)
]
FILES = {
    "bible/en-own.tsv": "".join(VERSES),
    "bible/es-own.tsv": "".join(VERSES[1:]),
    "text/en.txt": "One. Two.\n\nThree.\n",
    "nli/xnli.dev.es.tsv": "P.\tH.\tneutral\nQ.\tH.\tentailment\n",
    "vocab/mbert-cased.vocab.txt": "\n".join([*SPECIALS, "rain", "##s"]),
    "ner/en-panx.train.conll": "rain\tO\n",
    "ner/en-panx.dev.conll": "Ada\tB-PER\nslept\tO\n\nParis\tB-LOC\n",
}
OWN_FILES = [
    CorpusSpec(
        "bible/en-own",
        parameters=(("books", "NT"), ("split", "clauses"), ("min_words", 1), ("holdout", 2)),
    ),
    CorpusSpec("bible/en-own+text/en"),
    CorpusSpec("text/en"),
    RecordsSpec("nli", "xnli/es", "dev", 1, (("seed", 1),)),
    RecordsSpec("ner", "panx/en", "dev", 0, (("unseen", True),)),
    MeasureSpec(K, CorpusSpec("bible/en-own"), words="none", other=CorpusSpec("bible/es-own")),
]


def every_stage():
    for module in pkgutil.walk_packages(xlingual_nb.__path__, "xlingual_nb."):
        importlib.import_module(module.name)
    ours = {
        name: stage
        for name, stage in declared_stages().items()
        if stage.spec.__module__.startswith("xlingual_nb.")
    }
    # they share a maker
    return {
        name: stage for name, stage in ours.items() if RecordsSpec not in stage.spec.__mro__[1:]
    }


def what_ran(folder, stages) -> dict[str, set]:
    """{stage: definitions that ran in its maker}, every stage made at a tiny size in this
    process.
    """
    data, store = folder / "data", Store(folder / "runs")
    for name, told in FILES.items():
        (data / name).parent.mkdir(exist_ok=True, parents=True)
        (data / name).write_text(told)
    run([TEXTS.records, TREES.records, MANY], store, progress=False)
    stage_code()  # read now: a profiler slows reading
    makers = {name: stage.make for name, stage in stages.items()}
    with pytest.MonkeyPatch.context() as around, Profiler(**makers) as seen:
        around.setenv("XLINGUAL_DATA", str(data))
        brought = ExternalCheckpointSpec(str(tiny_checkpoint(data / "brought", 64)))
        asked = FrozenNliSpec(
            brought, NLI, NLI_TEST, ((NLI_ES, NLI_ES),), Readout("mean", epochs=1)
        )
        run([*SPECS, *OWN_FILES, asked], store, progress=False)
    return seen.ran


@pytest.mark.ci
def test_what_ran_was_reached(tmp_path):
    """Of every stage; one test, so that one process makes them."""
    stages = every_stage()
    ran = what_ran(tmp_path, stages)
    assert set(ran) == set(stages) and all(len(definitions) > 2 for definitions in ran.values())
    assert len(set().union(*ran.values())) > 200, "a profile that saw little shows little"
    reached = {name: set(reached_code(s.make, s.spec)) for name, s in stages.items()}
    missed = {name: ran[name] - reached[name] for name in stages}
    assert {name: definitions for name, definitions in missed.items() if definitions} == {}


def hidden():
    return 1


def seen():
    return globals()["hid" + "den"]() + sum(1 for _ in map(once, [1]))


def once(x):
    return x


def make_blindly():
    return (lambda: seen())()


def test_the_profiler_sees_what_reading_cannot():
    with Profiler(toy=make_blindly) as profile:
        make_blindly()
    assert {n for _, n in profile.ran["toy"]} == {"make_blindly", "seen", "hidden", "once"}
    assert {n for _, n in reached_code(make_blindly)} - {""} == {"make_blindly", "seen", "once"}


def test_a_second_look_at_the_digests_parses_no_file_again(monkeypatch):
    """What every study pays is a look at files that have not changed."""
    before = stage_code()

    def refuse(*_, **__):
        raise AssertionError("a file was parsed again")

    monkeypatch.setattr(ast, "parse", refuse)
    assert stage_code() == before

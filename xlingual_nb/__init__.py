"""Why is multilingual BERT multilingual? Five papers, made to run again.

The functions below take plain sentences: a text is a list of strings, a text in several languages
a dict from the language to its list.

Texts
    `load_text`, `load_parallel_text`, `load_dictionary`, `fake_english`, `romanize`, `permute`,
    `invert`, `frequency_corpus`, `slice_windows`, `tokenize_words`, `transform_records`
Tokenizers
    `train_tokenizer`, `subword_overlap`
Checkpoints
    `PretrainingConfig`, `pretrain`, `train_word_vectors`, `Checkpoint`, `load_checkpoint`, `probe`
Zero-shot transfer
    `load_records`, `FineTuningConfig`, `fine_tune`, `FineTuned`
Measures
    `multilinguality`, `word_retrieval`, `vecmap`, `language_identity`, `mean_shift`, `MeanShift`,
    `sentence_vectors`, `masked_nll`
Figures
    `word_trajectory`, `plot_emergence`, `animate_emergence`, `plot_words`, `plot_positions`
Papers and results
    `claims`, `ambiguities`, `tables`, `published`, `reference_results`

>>> import xlingual_nb as xl
>>> xl.permute(["the old house by the river"], seed=1)
['the old the by river house']

Each is loaded when it is first used, so that the import itself takes no time. What a user can mend
raises an `InputError`, which says how.
"""

__version__ = "0.1.0"

_NAMES = {  # by the module that has them
    "errors": ("InputError",),
    "api.texts": (
        "fake_english",
        "frequency_corpus",
        "invert",
        "load_dictionary",
        "load_parallel_text",
        "load_text",
        "permute",
        "romanize",
        "slice_windows",
        "tokenize_words",
        "transform_records",
    ),
    "api.tokenizers": (
        "subword_overlap",
        "train_tokenizer",
    ),
    "api.checkpoints": (
        "Checkpoint",
        "load_checkpoint",
        "pretrain",
        "probe",
    ),
    "api.pretraining_config": ("PretrainingConfig",),
    "api.word_vectors": ("train_word_vectors",),
    "api.transfer": (
        "FineTuned",
        "FineTuningConfig",
        "fine_tune",
        "load_records",
    ),
    "api.measures": (
        "MeanShift",
        "language_identity",
        "masked_nll",
        "mean_shift",
        "multilinguality",
        "sentence_vectors",
        "vecmap",
        "word_retrieval",
    ),
    "api.training_figures": (
        "animate_emergence",
        "plot_emergence",
        "plot_positions",
        "plot_words",
        "word_trajectory",
    ),
    "api.papers": (
        "ambiguities",
        "claims",
        "published",
        "reference_results",
        "tables",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)

TYPE_CHECKING = False  # editors take it for typing's, whose import would take time
if TYPE_CHECKING:
    from .api.checkpoints import Checkpoint, load_checkpoint, pretrain, probe
    from .api.measures import (
        MeanShift,
        language_identity,
        masked_nll,
        mean_shift,
        multilinguality,
        sentence_vectors,
        vecmap,
        word_retrieval,
    )
    from .api.papers import ambiguities, claims, published, reference_results, tables
    from .api.pretraining_config import PretrainingConfig
    from .api.texts import (
        fake_english,
        frequency_corpus,
        invert,
        load_dictionary,
        load_parallel_text,
        load_text,
        permute,
        romanize,
        slice_windows,
        tokenize_words,
        transform_records,
    )
    from .api.tokenizers import subword_overlap, train_tokenizer
    from .api.training_figures import (
        animate_emergence,
        plot_emergence,
        plot_positions,
        plot_words,
        word_trajectory,
    )
    from .api.transfer import FineTuned, FineTuningConfig, fine_tune, load_records
    from .api.word_vectors import train_word_vectors
    from .errors import InputError


def __getattr__(name: str):
    from importlib import import_module

    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value  # so that the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__

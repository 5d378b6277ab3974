"""Files as the field has them: each layout of data/README.md known by sight, told with the command, and
written so that this project's reader reads what it says.
"""

import json
import re
from pathlib import Path

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.text.data_check import describe_file
from xlingual_nb.text.layouts import convert, foreign_layout_message, possible_conversions

README = Path(__file__).parents[1] / "data/README.md"
PAIR = "Sataa.\tOn märkää."
WORD = "1\tja\tja\tCCONJ\t_\t_\t0\troot\t_\t_"
CASES = {  # (folder, layout of the README): file, its lines, the lines to be
    ("ner", "CoNLL-2003"): (
        "fi-a.train.conll",
        ["Oulu NNP B-NP B-LOC", "on VBZ B-VP O", "", "Anna NNP B-NP B-PER"],
        ["Oulu\tB-LOC", "on\tO", "", "Anna\tB-PER"],
    ),
    ("ner", "document starts"): (
        "nl-a.train.conll",
        ["-DOCSTART-\tO", "Oulu\tB-LOC", "", "-DOCSTART-\tO", "", "on\tO"],
        ["Oulu\tB-LOC", "", "on\tO"],
    ),
    ("ner", "comments"): (
        "fi-a.train.conll",
        ["# id 7", "Oulu\tB-LOC", "# a note", "#\tO"],
        ["Oulu\tB-LOC", "#\tO"],
    ),
    ("ner", "IOB1"): (
        "es-a.train.conll",
        ["Oulu\tI-LOC", "Lahti\tB-LOC", "Anna\tI-PER", "Berg\tI-PER", "", "Ivalo\tI-LOC"],
        ["Oulu\tB-LOC", "Lahti\tB-LOC", "Anna\tB-PER", "Berg\tI-PER", "", "Ivalo\tB-LOC"],
    ),
    ("ner", "IOBES, BILOU, BMES"): (
        "fi-a.dev.conll",
        ["Oulu\tU-LOC", "Anna\tB-PER", "von\tI-PER", "Berg\tL-PER", "on\tO"],
        ["Oulu\tB-LOC", "Anna\tB-PER", "von\tI-PER", "Berg\tI-PER", "on\tO"],
    ),
    ("ner", "GermEval"): (
        "de-a.test.conll",
        ["# web 1", "1\tOulus\tB-LOC\tO", "2\tUni\tO\tB-ORG", "", "1\tJa\tO\tO"],
        ["Oulus\tB-LOC", "Uni\tO", "", "Ja\tO"],
    ),
    ("ner", "numbered tokens"): (
        "fi-a.test.conll",
        ["# sent_id = 1", "1\tOulu\t_\tB-LOC", "2\ton\t_\tO", "", "1\tJa\t_\tO"],
        ["Oulu\tB-LOC", "on\tO", "", "Ja\tO"],
    ),
    ("ner", "tag first"): (
        "fi-a.test.conll",
        ["B-LOC\tOulu", "O\ton"],
        ["Oulu\tB-LOC", "on\tO"],
    ),
    ("ner", "WikiANN"): (
        "fi-a.test.conll",
        ["fi:Oulu\tB-LOC", "fi:on\tO"],
        ["Oulu\tB-LOC", "on\tO"],
    ),
    ("nli", "XNLI"): (
        "xnli.dev.fi.tsv",
        [
            "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tlabel1",
            'fi\tneutral\t( x )\tSataa "taas.\tOn märkää.\tneutral',
            "de\tneutral\t( x )\tEs regnet.\tNass.\tneutral",
        ],
        ['Sataa "taas.\tOn märkää.\tneutral'],
    ),
    ("nli", "MultiNLI"): (
        "mnli.train.en.tsv",
        [
            json.dumps(dict(gold_label=label, sentence1="It rains.", sentence2="It is\nwet."))
            for label in ("entailment", "-")
        ],
        ["It rains.\tIt is wet.\tentailment"],
    ),
    ("nli", "machine-translated XNLI"): (
        "xnli.dev.fi.tsv",
        ["premise\thypo\tlabel", f"{PAIR}\tcontradictory"],
        [f"{PAIR}\tcontradiction"],
    ),
    ("nli", "label first"): ("xnli.dev.fi.tsv", [f"neutral\t{PAIR}"], [f"{PAIR}\tneutral"]),
    ("nli", "labels by letter"): (
        "xnli.dev.fi.tsv",
        [f"{PAIR}\tn", f"{PAIR}\te", f"{PAIR}\tc"],
        [f"{PAIR}\tneutral", f"{PAIR}\tentailment", f"{PAIR}\tcontradiction"],
    ),
    ("nli", "numbered pairs"): ("xnli.dev.fi.tsv", [f"7\t{PAIR}\tneutral"], [f"{PAIR}\tneutral"]),
    ("nli", "quoted columns"): (
        "xnli.dev.fi.tsv",
        ['"Hän ""ui""."\t"On märkää."\t"neutral"'],
        ['Hän "ui".\tOn märkää.\tneutral'],
    ),
    ("nli", "tabs or lines too many"): (
        "xnli.dev.fi.tsv",
        [f"{PAIR}\tneutral\t", "", f"{PAIR}\tentailment\t\t", ""],
        [f"{PAIR}\tneutral", f"{PAIR}\tentailment"],
    ),
    ("nli", "numbers for labels"): ("xnli.dev.fi.tsv", [f"{PAIR}\t0", f"{PAIR}\t2"], None),
    ("doc", "SIB-200"): (
        "fi.train.tsv",
        ["index_id\tcategory\ttext", "7\ttravel\tMeri on sininen."],
        ["Meri on sininen.\ttravel"],
    ),
    ("doc", "MLDoc"): (
        "de.train.tsv",
        ["MCAT\tDie Firma.", "GCAT\tDer Kurs."],
        ["Die Firma.\tMCAT", "Der Kurs.\tGCAT"],
    ),
    ("doc", "topic first"): (
        "fi.train.tsv",
        [f"{'art' if n % 2 else 'sport'}\tJuttu numero {n}." for n in range(6)],
        [f"Juttu numero {n}.\t{'art' if n % 2 else 'sport'}" for n in range(6)],
    ),
    ("doc", "fastText"): (
        "fi.train.tsv",
        ["__label__travel Meri on sininen.", "__label__art Talo."],
        ["Meri on sininen.\ttravel", "Talo.\tart"],
    ),
    ("langid", "WiLI-2018"): ("x_train.txt", ["Meri on sininen."], ["Meri on sininen.\tfin"]),
    ("langid", "Tatoeba"): (
        "own.train.tsv",
        [f"{n}\t{'fin' if n % 2 else 'swe'}\tLause {n}." for n in range(6)],
        [f"Lause {n}.\t{'fin' if n % 2 else 'swe'}" for n in range(6)],
    ),
    ("langid", "header"): (
        "own.train.tsv",
        ["text\tlanguage", "Meri on sininen.\tfi"],
        ["Meri on sininen.\tfi"],
    ),
    ("langid", "language first"): (
        "train.tsv",
        [f"{'fi' if n % 2 else 'sv'}\tLause {n}." for n in range(6)],
        [f"Lause {n}.\t{'fi' if n % 2 else 'sv'}" for n in range(6)],
    ),
    ("bible", "OSIS and other names"): (
        "fi-a.tsv",
        ["b.MAT.005.003\tAutuaita.", "1John 2:4\tHe.", "MAR 5:3 Hän.", "MAT.5.6-7\tNe."],
        ["MAT.5.3\tAutuaita.", "1JN.2.4\tHe.", "MRK.5.3\tHän."],
    ),
    ("bible", "Mayer and Cysouw"): ("fi-a.tsv", ["40005003\tAutuaita."], ["MAT.5.3\tAutuaita."]),
    ("bible", "Unbound Bible"): (
        "fi-a.tsv",
        ["#name\tFinnish", "01O\t1\t1\t\t10\tAlussa loi Jumala.", "40N\t5\t3\t\t20\tAutuaita."],
        ["GEN.1.1\tAlussa loi Jumala.", "MAT.5.3\tAutuaita."],
    ),
    ("bible", "table of verses"): (
        "fi-b.tsv",
        ["Book,Chapter,Verse,Text", '1 John,2,4,"Hän, joka"', "Psalms,3,1,Psalmi."],
        ["1JN.2.4\tHän, joka", "PSA.3.1\tPsalmi."],
    ),
    ("bible", "ranges of verses"): (
        "fi-b.tsv",
        ["MAT.5.3\tKolme.", "MAT.5.4\tNeljä ja viisi.", "MAT.5.5\t<range>", "MAT.5.6\tKuusi."],
        ["MAT.5.3\tKolme.", "MAT.5.6\tKuusi."],
    ),
    ("bible", "eBible"): (
        "fi-a.tsv",
        ["Yksi.", "Kaksi ja kolme.", "<range>", "", "Viisi."],
        ["GEN.1.1\tYksi.", "GEN.1.5\tViisi."],
    ),
    ("dictionaries", "weights"): (
        "en-fi.txt",
        ["cat kissa 0.5", "dog koira 1e-3"],
        ["cat kissa", "dog koira"],
    ),
    ("dictionaries", "phrases"): (
        "en-fi.txt",
        ["cat\tkissa", "ice cream\tjäätelö"],
        ["cat kissa"],
    ),
    ("dictionaries", "other signs"): (
        "en-fi.txt",
        ["cat ||| kissa", "ice cream ||| jäätelö"],
        ["cat kissa"],
    ),
    ("dictionaries", "words parted by blanks alone"): ("en-fi.txt", ["ice cream jäätelö"], None),
    ("ud", "CoNLL-U Plus"): (
        "fi-a.train.conllu",
        ["# global.columns = ID FORM UPOS HEAD DEPREL X:Y LEMMA", "1\tja\tCCONJ\t0\troot\t*\tja"],
        [WORD],
    ),
    ("ud", "blanks for tabs"): ("fi-a.train.conllu", [WORD.replace("\t", "  ")], [WORD]),
    ("ud", "Universal Dependencies 1"): (
        "fi-a.train.conllu",
        ["# text = ja", WORD.replace("CCONJ", "CONJ")],
        ["# text = ja", WORD],
    ),
}
BESIDE = {
    "x_train.txt": ("y_train.txt", "fin\n"),
    "fi-a.tsv": ("vref.txt", "".join(f"GEN 1:{n}\n" for n in range(1, 7))),
}


def write(folder, kind, name, lines, end="\n"):
    path = folder / kind / name
    path.parent.mkdir()
    path.write_bytes("".join(line + end for line in lines).encode())
    if name in BESIDE:
        beside, text = BESIDE[name]
        (path.parent / beside).write_text(text)
    return path


def test_the_table_of_layouts_has_a_case_a_row():
    text = README.read_text(encoding="utf-8").partition("## Layouts of the field")[2]
    rows = re.findall(r"^\| `(\w+)/` \| ([^|]+) \|", text.partition("\n## ")[0], re.M)
    assert set(rows) == set(CASES)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind, layout", CASES)
def test_a_layout_is_told_and_written_as_its_reader_wants(tmp_path, kind, layout, end):
    name, lines, expected = CASES[kind, layout]
    path = write(tmp_path, kind, name, lines, end)
    told = foreign_layout_message(path, kind)
    if expected is None:
        assert "two readings are possible" in told and " or " in told
        with pytest.raises(InputError, match="two readings are possible"):
            convert(path, kind)
        return
    assert f"xlingual data convert {path}" in told and "\n" not in told
    before = path.read_bytes()
    reading, target = convert(path, kind)
    assert target.read_text(encoding="utf-8").splitlines() == expected == reading.lines
    assert foreign_layout_message(target, kind) == ""
    holds, problem = describe_file(target, tmp_path)
    assert holds and not problem
    original = path if layout == "WiLI-2018" else path.with_name(f"{name}.orig")
    assert original.read_bytes() == before


MORE = [  # other files of the same layouts
    ("ner", "en-a.train.conll", ["# id 1 domain=en", "Ana _ _ B-PER"], ["Ana\tB-PER"]),
    (
        "ner",
        "zh-a.train.conll",
        ["北\tB-LOC", "京\tM-LOC", "市\tE-LOC", "王\tS-PER"],
        ["北\tB-LOC", "京\tI-LOC", "市\tI-LOC", "王\tB-PER"],
    ),
    ("ner", "de-a.train.conll", ["-DOCSTART- -X- O O O", "", "EU EU NE I-NC I-ORG"], ["EU\tB-ORG"]),
    ("ner", "es-a.train.conll", ["Oulu NP B-LOC ", "( Fpa O "], ["Oulu\tB-LOC", "(\tO"]),
    (
        "nli",
        "mnli.train.en.tsv",
        ["gold_label\tsentence1\tsentence2\tlabel1\tlabel2", "neutral\tIt rains.\tWet.\tneutral"],
        ["It rains.\tWet.\tneutral"],
    ),
    (
        "nli",
        "mnli.train.en.tsv",
        ["index\tsentence1\tsentence2\tgold_label", "0\tIt rains.\tWet.\tneutral"],
        ["It rains.\tWet.\tneutral"],
    ),
    (
        "doc",
        "fi.train.tsv",
        ["index_id,category,text", '7,art,"Meri, taas."'],
        ["Meri, taas.\tart"],
    ),
    ("langid", "train.tsv", ["__label__fi Sataa."], ["Sataa.\tfi"]),
    (
        "bible",
        "fi-b.tsv",
        ["# language_name: Finnish", "40001001\tYksi.", "#40001002\tKaksi.", "1001001\tAlussa."],
        ["MAT.1.1\tYksi.", "GEN.1.1\tAlussa."],
    ),
    (
        "bible",
        "fi-b.tsv",
        ["Song of Solomon 1:2\tSuu.", "2 Kings 1:1\tJa."],
        ["SNG.1.2\tSuu.", "2KI.1.1\tJa."],
    ),
    ("bible", "fi-b.tsv", ["mat_5_3\tHe."], ["MAT.5.3\tHe."]),
    ("bible", "fi-b.tsv", ["MAT\t5\t3\tHe."], ["MAT.5.3\tHe."]),
    ("dictionaries", "en-fi.txt", ["cat,kissa", "dog,koira"], ["cat kissa", "dog koira"]),
    ("dictionaries", "en-fi.txt", ['"cat" "kissa"'], ["cat kissa"]),
]


@pytest.mark.parametrize("kind, name, lines, expected", MORE)
def test_other_files_of_a_layout(tmp_path, kind, name, lines, expected):
    path = write(tmp_path, kind, name, lines)
    assert f"xlingual data convert {path}" in foreign_layout_message(path, kind)
    _, target = convert(path, kind)
    assert target.read_text(encoding="utf-8").splitlines() == expected
    assert foreign_layout_message(target, kind) == "" and not describe_file(target, tmp_path)[1]


def test_xnli_without_the_language_names_those_that_it_has(tmp_path):
    header = "language\tgold_label\tsentence1\tsentence2"
    path = write(tmp_path, "nli", "xnli.dev.fi.tsv", [header, "en\tneutral\tA.\tB."])
    assert "has pairs of en and none of 'fi'" in foreign_layout_message(path, "nli")


@pytest.mark.parametrize(
    "kind, name, lines",
    [
        ("ner", "fi-a.train.conll", ["#\tO", "Oulu\tB-LOC"]),
        ("langid", "train.tsv", ["Sataa.\tfi", "Regn.\tsv"]),
        ("ner", "fi-a.train.conll", ["Oulu\tB-LOC", "on\tI-LOC", "", "ja\tO"]),
        (
            "ner",
            "fi-a.train.conll",
            ["Oulu\tB-LOC", "on\tO", "Anna\tI-PER"],
        ),  # neither IOB1 nor IOB2
        ("ner", "fi-a.train.conll", ["Oulu\tB-LOC", "on"]),
        ("nli", "xnli.dev.fi.tsv", [f"{PAIR}\tneutral", f"{PAIR}\tmaybe"]),
        ("doc", "fi.train.tsv", ["Maali.\tsport", "Kurssi.\tart"]),
        ("bible", "xx.tsv", ["MAT.5.3\tAutuaita.", "MAT.5.4\tHe."]),
        ("bible", "xx.tsv", ["Autuaita.", "He."]),
        ("dictionaries", "en-fi.txt", ["cat kissa", "dog\tkoira"]),
        ("ud", "fi-a.train.conllu", [WORD, "2\tja"]),
    ],
)
def test_what_is_ours_or_damaged_is_left_to_its_reader(tmp_path, kind, name, lines):
    path = write(tmp_path, kind, name, lines)
    assert possible_conversions(path, kind) == [] and foreign_layout_message(path, kind) == ""
    with pytest.raises(InputError, match="no other layout"):
        convert(path, kind)
    assert not path.with_name(f"{name}.orig").exists()


def test_a_second_file_that_is_needed_is_named(tmp_path):
    path = write(tmp_path, "langid", "x_test.txt", ["Meri on sininen."])
    assert "y_test.txt, beside it" in foreign_layout_message(path, "langid")
    path = write(tmp_path, "bible", "sv-a.tsv", ["Ett.", "<range>"])
    assert "vref.txt beside it" in foreign_layout_message(path, "bible")


def test_marks_are_joined_by_choice(tmp_path):
    path = write(tmp_path, "text", "fi.txt", ["a\u0308iti"])
    with pytest.raises(InputError, match="NFC or NFD"):
        convert(path, "text", form="nfkc")
    convert(path, "text", form="NFC")
    assert path.read_text(encoding="utf-8") == "\u00e4iti\n"
    assert path.with_name("fi.txt.orig").read_text(encoding="utf-8") == "a\u0308iti\n"


def test_a_file_of_ours_keeps_its_name_where_it_is_normalised(tmp_path):
    path = write(tmp_path, "langid", "wili10.train.tsv", ["a\u0308iti\tfi"])
    _, target = convert(path, "langid", form="NFC")
    assert target == path and path.read_text(encoding="utf-8") == "\u00e4iti\tfi\n"


def test_an_original_is_never_written_over(tmp_path):
    path = write(tmp_path, "doc", "de.train.tsv", ["MCAT\tDie Firma."])
    path.with_name("de.train.tsv.orig").write_text("mine")
    with pytest.raises(InputError, match="move it, or name --to"):
        convert(path, "doc")
    convert(path, "doc", to=tmp_path / "new.tsv")
    assert (
        path.read_text().startswith("MCAT")
        and (tmp_path / "new.tsv").read_text() == "Die Firma.\tMCAT\n"
    )

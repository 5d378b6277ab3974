"""Files that are read and mean something else: each kind is told with its share, line and fix."""

import pytest

from xlingual_nb.text.plausibility import plausibility

FINE = ["Tämä on lause numero yksi.", "Toinen lause on täällä.", "Ja kolmas, vähän pitempi, lause."]


def findings(folder, **files):
    """What is said of files, given as name=lines, and which of them are refused."""
    for name, lines in files.items():
        kind, _, rest = name.partition("__")
        path = folder / kind / rest.replace("_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return plausibility(folder, sorted(folder.glob("*/*")))


@pytest.mark.parametrize(
    "line, says",
    [
        ("<doc id='1' title='Otsikko'>", "hold markup"),
        ("lause &amp; lause", "hold markup"),
        ("x codice_1 formula_2", "hold markup"),
        ("-LRB- lause -RRB-", "hold markup"),
        ("lau\x00se", "control characters"),
        ("lau\ufffdse", "control characters"),
        ("TÃ¤mÃ¤ on lause", "read as Latin-1"),
        ("* * *", "have no letters"),
        ("[[Suomi]] on maa", "hold markup"),
        ("РўРµСЃС‚ лине".replace("лине", "СЃС‚"), "a code page"),
        ("7\tlause", "are records"),
        ("▁lau se", "subwords of a tokenizer"),
        ("lau@@ se", "subwords of a tokenizer"),
        ("lau\u00adse", "invisible characters"),
        ("sana " * 201, "over 200 words"),
    ],
)
def test_text_that_is_no_text(tmp_path, line, says):
    told, wrong = findings(tmp_path, text__fi_txt=[*FINE, line, *FINE[:1]])
    (finding,) = told["text/fi.txt"]
    assert says in finding and "20.0% of the lines" in finding and "line 4" in finding
    assert wrong == []
    many = [*FINE, *(f"{line} {i}" if i % 2 else f"{i} {line}" for i in range(1, 9))]
    _, wrong = findings(tmp_path, text__fi_txt=many)
    assert wrong == ([] if says in ("over 200 words", "invisible characters") else ["text/fi.txt"])


@pytest.mark.parametrize(
    "line, says", [("== Otsikko ==", "hold markup"), ('{"text": "lause"}', "are records")]
)
def test_whole_lines_that_are_no_text(tmp_path, line, says):
    told, _ = findings(tmp_path, text__fi_txt=[*FINE, line])
    (finding,) = told["text/fi.txt"]
    assert says in finding and "25.0% of the lines" in finding and "line 4" in finding


WRAPPED = """Alice was beginning to get very tired of sitting by her sister on the
bank, and of having nothing to do: once or twice she had peeped into the
book her sister was reading, but it had no pictures or conversations in
it. And what is the use of a book?
"""


def test_lines_that_are_wrapped_are_no_sentences(tmp_path):
    told, wrong = findings(tmp_path, text__en_txt=WRAPPED.splitlines())
    (finding,) = told["text/en.txt"]
    assert "75.0% of the lines begin within a sentence (first: line 2)" in finding and wrong == []
    told, _ = findings(tmp_path, text__en_txt=WRAPPED.replace("\n", " ").split(". "))
    assert not any("within a sentence" in line for line in told.get("text/en.txt", []))


def test_good_text_in_every_script_passes(tmp_path):
    told, wrong = findings(
        tmp_path,
        text__fi_txt=FINE,
        text__fr_txt=["Ça va ?", "Où êtes-vous allé ? À Paris.", "Il a dit : « non »."],
        text__ru_txt=["Дом стар.", "Идёт дождь."],
        text__zh_txt=["房子很旧。", "今天下雨。"],
        text__hi_txt=["घर पुराना है।", "बारिश हो रही है।"],
        text__th_txt=["บ้านเก่า", "ฝนตก"],
        text__vi_txt=["Trời đang mưa.", "Chào buổi sáng."],
        text__ja_txt=["雨が降っている。", "カタカナもある。"],
        text__ta_txt=["மழை பெய்கிறது.", "வீடு பழையது."],
        text__ka_txt=["წვიმს.", "სახლი ძველია."],
    )
    assert (told, wrong) == ({}, [])


def test_another_script_and_repeated_lines(tmp_path):
    told, _ = findings(
        tmp_path, text__ru_txt=FINE, text__ja_txt=FINE, text__en_txt=[*FINE, *FINE[:1] * 4]
    )
    assert "100.0% of the letters are not Hiragana" in told["text/ja.txt"][0]
    assert "100.0% of the letters are not Cyrillic" in told["text/ru.txt"][0]
    assert "57.1% of the lines repeat another (5 times" in told["text/en.txt"][0]


def test_verses_are_looked_at_without_their_names(tmp_path):
    rows = [f"MAT.5.{i}\t{line}" for i, line in enumerate(["<wj>Autuaita ovat.</wj>", *FINE], 1)]
    told, wrong = findings(tmp_path, **{"bible__fi-own_tsv": rows})
    assert "25.0% of the lines hold markup (first: line 1)" in told["bible/fi-own.tsv"][0]
    assert wrong == []


def test_a_remark_in_brackets_is_no_parse_tree(tmp_path):
    remark = "( NBC promotes the show here . )\tNBC has declined to .\tcontradiction"
    tree = "( ( NBC ( promotes ( the show ) ) ) . )\t( NBC . )\tneutral"
    told, wrong = findings(
        tmp_path,
        nli__xnli_dev_en_tsv=[remark, "A.\tB.\tneutral"],
        nli__xnli_test_en_tsv=[tree, remark],
    )
    assert "50.0% of the premises are parse trees" in told["nli/xnli.test.en.tsv"][0]
    assert "nli/xnli.dev.en.tsv" not in told and wrong == []


def test_labels_that_are_texts_and_one_label_alone(tmp_path):
    swapped = [f"{topic}\tTeksti numero {i}." for i, topic in enumerate(["sport", "art"] * 5)]
    told, wrong = findings(
        tmp_path, doc__fi_train_tsv=swapped, doc__en_train_tsv=["A\tsport", "B\tsport"]
    )
    assert "each of 10 records has a label of its own" in told["doc/fi.train.tsv"][0]
    assert "all 2 records are 'sport'" in told["doc/en.train.tsv"][0]
    assert wrong == ["doc/fi.train.tsv"]


def test_sentences_without_an_end_and_words_on_the_wrong_side(tmp_path):
    told, _ = findings(
        tmp_path,
        ner__en_train_conll=["Ana\tB-PER", "", *["is\tO"] * 300],
        **{"dictionaries__en-ru_txt": ["дом house", "кот cat"]},
    )
    assert told["ner/en.train.conll"] == [
        "1 of 2 sentences have over 200 lines (first: line 3, 300 of them): put an empty line after each sentence"
    ]
    assert any(
        "of the letters of en are not Latin" in line for line in told["dictionaries/en-ru.txt"]
    )


def test_a_file_without_names(tmp_path):
    told, _ = findings(tmp_path, ner__en_train_conll=["Anna\tO", "sings\tO", "", "Bo\tO"])
    assert "all 3 tags are O" in told["ner/en.train.conll"][0]


def test_records_of_the_test_that_stand_in_training(tmp_path):
    train = [f"text {i}\tsport" for i in range(5)] + [f"text {i}\tart" for i in range(5, 10)]
    told, _ = findings(
        tmp_path,
        doc__xx_train_tsv=train,
        doc__xx_test_tsv=[*train[:4], "new\tart", "newer\tsport", "newest\tart ", train[4] + " "],
        doc__xx_dev_tsv=["other\tart", "others\tsport"],
    )
    assert list(told) == ["doc/xx.test.tsv"]
    assert "62.5% of the records stand in xx.train.tsv too" in told["doc/xx.test.tsv"][0]
    blocks = ["Anna\tB-PER", "sings\tO", "", "Bo\tB-PER", ""]
    told, _ = findings(tmp_path, ner__en_train_conll=blocks, ner__en_test_conll=blocks[3:])
    assert "100.0% of the records" in told["ner/en.test.conll"][0]

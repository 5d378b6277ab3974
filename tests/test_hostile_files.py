"""Files as people have them, one flaw each: `xlingual data check` says what is wrong, or that nothing is.

A case is a file, its bytes, and a part of what is said of it: of its reader's error, or of what it holds
where the reader takes it, or of what is odd about it. Layouts of other makers are in test_layouts.
"""

import gzip

import pytest

from xlingual_nb.text.checksums import data_files
from xlingual_nb.text.data_check import check_data_folder
from xlingual_nb.text.plausibility import plausibility

WORD = "1\tSataa\tsataa\tVERB\t_\t_\t0\troot\t_\t_\n"
NEXT = "2\ttaas\ttaas\tADV\t_\t_\t1\tadvmod\t_\t_\n"
NER = "ner/fi-own.train.conll"
UD = "ud/fi-own.train.conllu"
NLI = "nli/xnli.dev.fi.tsv"
TEXT = "text/fi.txt"
VERSES = "bible/fi-own.tsv"
WORDS = "dictionaries/en-fi.txt"
CONVERT = "xlingual data convert "
SAID = [
    # text
    (TEXT, b"\xef\xbb\xbfSataa.\n", "1 sentence in 1 document"),
    (TEXT, "Sataa.\n".encode("utf-16"), "line 1: the text is UTF-16: save it as UTF-8"),
    (TEXT, "Sää on hyvä.\n".encode("latin-1"), "line 1: byte 0xe4 is not UTF-8"),
    (TEXT, b"Sataa \xed\xa0\x80.\n", "line 1: byte 0xed is not UTF-8"),
    (TEXT, b"", "is empty: get it again"),
    (TEXT, b"Sataa.\r\n\r\nTaas.\r\n", "2 sentences in 2 documents"),
    (TEXT, b'<doc id="1">\nSataa.\n', "50.0% of the lines hold markup (first: line 1)"),
    (TEXT, b"Sataa.\nSa\x00taa.\n", "50.0% of the lines hold control characters (first: line 2)"),
    (TEXT, "SÃ¤Ã¤.\nSataa.\n".encode(), "are UTF-8 read as Latin-1 or a code page (first: line 1)"),
    (TEXT, b"sana " * 201, "have over 200 words (first: line 1): write one sentence a line"),
    (TEXT, b"* * *\nSataa.\n", "have no letters (first: line 1)"),
    (TEXT, "Идёт дождь.\n".encode(), "of the letters are not Latin, as fi is written"),
    ("text/fi.txt.gz", b"Sataa.\n", "is not a whole gzip file"),
    ("text/fi.txt.gz", b"PK\x03\x04", "is not a whole gzip file"),
    (
        "text/fi.txt.gz",
        gzip.compress(b"A.\n") + gzip.compress(b"B.\n"),
        "2 sentences in 1 document",
    ),
    ("text/fi.txt.bz2", b"BZh9", "decompress it to fi.txt, or compress that by gzip"),
    ("text/fi.txt~", b"Sataa.\n", "nothing reads a file of this name (xx.txt"),
    ("text/fi.päivä lehti.txt", b"Sataa.\n", "1 sentence in 1 document"),
    (TEXT, b"1\tSataa.\n2\tTaas.\n", "are records, with tabs or JSON (first: line 1)"),
    ("text/ta.txt", b"Sataa.\n", "of the letters are not Tamil, as ta is written"),
    ("langid/train.tsv", b"text\tlabel\nSataa.\tfi\n", f"languages with a header: {CONVERT}"),
    (
        VERSES,
        b"MAT.5.3\tHe.\nMAT.5.4\t<range>\nMAT.5.5\tMe.\n",
        f"verses by other names: {CONVERT}",
    ),
    (WORDS, b"# words\nhouse talo\n", "is a heading: leave it out"),
    (TEXT, b"Sataa\x0ctaas.\n", "100.0% of the lines hold control characters"),
    (TEXT, "a\u0308iti\n".encode(), "not in Unicode's form NFC (first: line 1)"),
    (NER, "A\u0308iti\tB-PER\n".encode(), "not in Unicode's form NFC (first: line 1)"),
    ("text/zh-Hans.txt", "下雨了。\n".encode(), "1 sentence in 1 document"),
    ("text/fin.txt", b"Sataa.\n", "1 sentence in 1 document"),
    ("text/Thumbs.db", b"x", "nothing reads a file of this name (xx.txt"),
    # verses
    (VERSES, b"MAT.5.3-4\tAutuaita.\n", "'MAT.5.3-4' is no verse id: write BOOK.chapter.verse"),
    (VERSES, b"MAT.5.3\tHe.\nMAT.5.4\t\n", "line 2: verse MAT.5.4 has no text: remove the line"),
    (VERSES, b"MAT.5.3\tHe.\nMAT.5.3\tNe.\n", "line 2: verse MAT.5.3 is there twice"),
    (VERSES, b"MAT.5.3\t<wj>He.</wj>\nMAT.5.4\tNe.\n", "50.0% of the lines hold markup"),
    (
        VERSES,
        b"MAT.1.1\tHe.\nMAT.2.1\tNe.\nMAT.1.2\tMe.\n",
        "1 of 2 chapters are in several places",
    ),
    (VERSES, b"MAT.1.1\tHe.\nMAT.1.2\tNe.\nMAT.2.1\tMe.\n", "3 verses"),
    (VERSES, b"\xef\xbb\xbfMAT.5.3\tHe.\n", "1 verse"),
    (VERSES, b"MAT.005.003\tHe.\n", f"verses by other names: {CONVERT}"),
    (VERSES, b"MAR.5.3\tHe.\nJOH.5.4\tNe.\n", f"verses by other names: {CONVERT}"),
    (VERSES, "MAT.\u0665.\u0663\tHe.\n".encode(), f"verses by other names: {CONVERT}"),
    ("bible/fin-own.tsv", b"MAT.5.3\tHe.\n", "1 verse"),
    ("bible/pt_br-own.tsv", b"MAT.5.3\tEle.\n", "1 verse"),
    # pairs of sentences
    (NLI, b"A.\tB.\tNeutral\n", "line 1: label 'Neutral' is not known: write entailment"),
    (NLI, b"A.\t\tneutral\n", "line 1: the hypothesis is empty: remove the line"),
    (NLI, b'"A.\tB.\tneutral\nC.\t"D." E\tentailment\n', "2 pairs: neutral 1, entailment 1"),
    (NLI, "A\u2028B.\tC.\tneutral\n".encode(), "1 pair: neutral 1"),
    (NLI, b"( ( A ) . )\t( B . )\tneutral\n", "100.0% of the premises are parse trees in brackets"),
    (NLI, b"A.\tA.\tneutral\n", "100.0% of the pairs say the same twice"),
    (NLI, b"A.\tB.\tneutral\nC.\tD.\tneutral\n", "all 2 records are 'neutral'"),
    ("nli/XNLI.dev.fi.TSV", b"A.\tB.\tneutral\n", "call it xnli.dev.fi.tsv"),
    (NLI, b"n/a\tNA\tneutral\n", "1 pair: neutral 1"),
    (NLI, b"premise\thypothesis\tlabel\nA.\tB.\tneutral\n", f"with a header: {CONVERT}"),
    (NLI, b"A.\tB.\tneutral\nC.\tD.\t-\n", f"XNLI's labels: {CONVERT}"),
    (NLI, b"A.\tB.\tneutral\n\n", f"blank lines: {CONVERT}"),
    # names
    (NER, b"Oulu\tB-LOC\n \t \non\tO\n", "2 sentences: LOC 1"),
    (NER, b"Oulu\tB-LOC\n\tO\n", "line 2: there is no token before 'O': remove the line"),
    (NER, "Oulu\tB-LOC\n\u00a0\tO\n".encode(), "line 2: there is no token before 'O'"),
    (NER, b"Oulu\tb-loc\n", "line 1: tag 'b-loc' is no BIO tag: write O, B-KIND or I-KIND"),
    (NER, b"Oulu\tB-LOC\non\t0\n", "line 2: tag '0' is no BIO tag"),
    (NER, b"Oulu\tB-\n", "line 1: tag 'B-' is no BIO tag"),
    (NER, b"Uusi Oulu\tB-LOC\n", "1 sentence: LOC 1"),
    (NER, b"Oulu\tO\n", "all 1 tags are O: the file names no entities"),
    (NER, b"\xef\xbb\xbfOulu\tB-LOC\n", "1 sentence: LOC 1"),
    (NER, "Oulu\tB-LOC\n".encode("utf-16"), "line 1: the text is UTF-16"),
    (NER, "Jyväskylä\tB-LOC\n".encode("latin-1"), "line 1: byte 0xe4 is not UTF-8"),
    (NER, b"Oulu\tB-LOC\r\n\r\non\tO\r\n", "2 sentences: LOC 1"),
    (NER, b"Oulu\tB-LOC\ron\tO\r", f"line ends of old Macintoshes: {CONVERT}"),
    (NER, "Oulu\tB-LOC\n\u200b\tO\n".encode(), "1 sentence: LOC 1"),
    (NER, b"Oulu\tB-LOC\n\t\non\tO\n", "2 sentences: LOC 1"),
    (NER, b"Oulu\tI-LOC\n", f"IOB1: {CONVERT}"),
    (NER, b"Oulu B-LOC\non O\n", f"2 columns parted by blanks, BIO: {CONVERT}"),
    # treebanks
    (UD, f"{WORD}1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n{NEXT}", "1 sentence, 2 words, 2 relations"),
    (UD, f"{WORD}1.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n{NEXT}", "1 sentence, 2 words, 2 relations"),
    (UD, f"{WORD}# note\n{NEXT}", "1 sentence, 2 words"),
    (UD, f"{WORD}\n{WORD}".replace("\n", "\r\n"), "2 sentences, 2 words"),
    (UD, WORD + WORD, "line 2: word '1' where 2 is due: number the words of a sentence"),
    (UD, WORD.replace("VERB", "_"), "line 1: '_' is no universal part of speech"),
    (UD, WORD.replace("VERB", "verb"), "line 1: 'verb' is no universal part of speech"),
    (
        UD,
        WORD.replace("0\troot", "_\t_"),
        "line 1: word 1 hangs on '_': write the number of a word",
    ),
    (UD, WORD.replace("Sataa", "10 000"), "1 sentence, 1 word"),
    (UD, WORD.replace("Sataa", "#"), "1 sentence, 1 word"),
    (UD, f"# newdoc\n\n{WORD}", "1 sentence, 1 word"),
    (UD, WORD.replace("Sataa", "10\u00a0000"), "1 sentence, 1 word"),
    (UD, WORD.replace("Sataa", "\u00a0"), "line 1: word 1 has no form"),
    (UD, WORD.strip(), "1 sentence, 1 word"),
    # dictionaries
    (WORDS, b"house\ttalo\nhouse\tkoti\n", "1 word"),
    (WORDS, "house\u3000talo\n".encode(), "1 word"),
    (
        WORDS,
        b'<?xml version="1.0" encoding="utf-8"?>\nhouse talo\n',
        "is not two words: write `first second`",
    ),
    (WORDS, b"Oulu OULU\ntaxi taxi\nhouse talo\n", "66.7% of the pairs are one word twice"),
    ("dictionaries/fi-en.txt", b"talo house\n", "1 word"),
    (WORDS, b"House talo\nhouse talo\nDog koira\n", "2 words"),
    (
        WORDS,
        "cream j\u00e4\u00e4\u00a0tel\u00f6\n".encode(),
        "two readings are possible, 'cream' and",
    ),
    # others
    ("doc/fi.train.tsv", b"A.\ta\nB.\tb\nC.\tc\nD.\td\nE.\te\n", "each of 5 records has a label"),
    ("vocab/mbert-cased.vocab.txt", b"\xef\xbb\xbf[PAD]\nthe\n", "2 word pieces"),
    (
        "vocab/mbert-cased.vocab.txt",
        b"[PAD]\nthe\nthe\n",
        "1 of 3 subwords are there twice (line 3: 'the', as line 2)",
    ),
    (
        NLI,
        "".join(f"Lause {n}.\tSataa.\tneutral\n" for n in range(30)),
        "check that the premise stands first",
    ),
    (WORDS, b"English Finnish\nhouse talo\n", "line 1, 'English Finnish', is a heading"),
    ("langid/train.tsv", b"fi\tSataa.\nfi\tTaas.\nfi\tNyt.\nsv\tNu.\nsv\tJa.\n", "of its own"),
]


def said_of(folder):
    """All that the check says of each file."""
    lines = [f"{row.problem} {row.holds}" for row in check_data_folder(folder).itertuples()]
    findings, _ = plausibility(folder, data_files(folder))
    return lines + [line for name in findings for line in findings[name]]


@pytest.mark.parametrize("name, data, says", SAID, ids=[f"{c[0]}-{i}" for i, c in enumerate(SAID)])
def test_what_is_said_of_a_file(tmp_path, name, data, says):
    path = tmp_path / name
    path.parent.mkdir()
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    lines = said_of(tmp_path)
    assert any(says in line for line in lines), lines
    assert not any("\n" in line for line in lines)


def test_a_link_beyond_its_sentence_is_told(tmp_path):
    (tmp_path / "alignment").mkdir()
    for end, text in (("src", "a b\nc d\n"), ("tgt", "x y\nz\n"), ("gold", "1-1 2-2\n1p1 2p2\n")):
        (tmp_path / f"alignment/fi-en.{end}").write_text(text)
    says = "line 2: link 2p2 is beyond a sentence of 2 and 1 words"
    assert any(says in line for line in said_of(tmp_path))
    _, wrong = plausibility(tmp_path, data_files(tmp_path))
    assert wrong == ["alignment/fi-en.gold"]


def test_a_file_beside_its_compressed_copy_is_told(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / TEXT).write_text("Sataa.\n")
    (tmp_path / f"{TEXT}.gz").write_bytes(gzip.compress(b"Taas.\n"))
    assert "stands beside fi.txt.gz: only fi.txt is read" in said_of(tmp_path)


def test_hidden_files_and_originals_are_passed_over(tmp_path):
    (tmp_path / "text").mkdir()
    for name in (".DS_Store", "fi.txt.orig"):
        (tmp_path / "text" / name).write_text("x")
    assert said_of(tmp_path) == []

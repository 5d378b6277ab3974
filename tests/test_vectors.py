"""Files of word vectors: read as gensim reads them, and refused with the place where they are
broken.
"""

import gzip
import io

import numpy as np
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.models.static_vectors import load_vector_file, read_binary_rows, read_vectors


def random_words(n, seed):
    rng = np.random.default_rng(seed)
    letters = list("abcdefghij.,'-áßλжあ😀_0123456789") + list("\t\x0b\x0c\x85\u00a0\u2028\u3000")
    words = list(
        dict.fromkeys("".join(rng.choice(letters, rng.integers(1, 9))) for _ in range(2 * n))
    )[:n]
    scale = 10.0 ** rng.integers(-20, 20, (len(words), 1))
    return words, (rng.normal(size=(len(words), 7)) * scale).astype(np.float32)


@pytest.mark.parametrize("name", ["x.vec", "x.vec.gz", "x.bin", "x.bin.gz"])
@pytest.mark.parametrize("seed", range(3))
def test_files_that_gensim_writes_are_read_to_the_bit(tmp_path, name, seed):
    models = pytest.importorskip("gensim.models")
    words, vectors = random_words(3000, seed)
    written = models.KeyedVectors(7)
    written.add_vectors(words, vectors)
    written.save_word2vec_format(str(tmp_path / name), binary=".bin" in name, write_header=True)
    ours, table = read_vectors(tmp_path / name)
    theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    assert ours == theirs.index_to_key == words and np.array_equal(table, theirs.vectors)


def test_a_file_of_the_c_program_has_line_feeds_between_entries(tmp_path):
    models = pytest.importorskip("gensim.models")
    words, vectors = random_words(500, 5)
    rows = b"".join(
        word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, vectors)
    )
    (tmp_path / "c.bin").write_bytes(b"%d 7\n" % len(words) + rows)
    ours, table = read_vectors(tmp_path / "c.bin")
    theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / "c.bin"), binary=True)
    assert ours == theirs.index_to_key == words
    assert np.array_equal(table, theirs.vectors) and np.array_equal(table, vectors)


@pytest.mark.parametrize("name", ["x.vec", "x.vec.gz"])
def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path, name):
    written = TEXT.encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith("gz") else written)
    words, vectors = read_vectors(tmp_path / name)
    assert words == ["la", "casa", "vieja"] and vectors.tolist() == [[0.5, -1], [0.25, 8], [3, 1]]


@pytest.mark.parametrize("block", [1, 5, 28, 29, 1000])
def test_blocks_do_not_show(block):
    words, vectors = random_words(50, 1)
    file = io.BytesIO(
        b"".join(word.encode() + b" " + row.tobytes() for word, row in zip(words, vectors))
    )
    read = list(read_binary_rows(file, 7, block))
    assert [word.decode() for word, _ in read] == words and np.array_equal(
        [row for _, row in read], vectors
    )


def as_binary(kind):
    """A binary file whose numbers are of another kind than float32, or of that."""
    rows = np.random.default_rng(0).normal(size=(9, 6)).astype(kind)
    words = ["la", "mi", "el", "ve", "tu", "yo", "si", "no", "ya"]
    rows = [word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows)]
    return b"9 6\n" + b"".join(rows)


WIDTH = 300
ROW = " ".join(f"{n / 7:.5f}" for n in range(WIDTH))
TEXT = "3 2\nla 0.5 -1\ncasa 0.25 8\nvieja 3 1\n"
BINARY = b"2 2\nla " + np.float32([1, 2]).tobytes() + b"casa " + np.float32([3, 4]).tobytes()


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("x.vec", "", "is empty"),
        ("x.vec", "\n", "line 1: .* no header"),
        ("x.vec", "3\n", "no header"),
        ("x.vec", "la 0.5 -1\n", "line 1: .*la 0.5 -1.* no header"),
        ("x.vec", "3 2.0\n", "no header"),
        ("x.vec", "0 2\n", "line 1: 0 words"),
        ("x.vec", "3 -2\n", "line 1: 3 words of -2"),
        ("x.vec", "9999999999999 300\n", "line 1: .* too many"),
        ("x.vec", "3 2\n", "line 2 is missing"),
        ("x.vec", TEXT[:-10], "line 4 is missing"),
        ("x.vec", TEXT[:-3], "line 4: columns after 'vieja': 1; "),
        (
            "x.vec",
            TEXT.replace("casa", "mi casa"),
            "line 3: columns after 'mi': 3; .*without spaces",
        ),
        ("x.vec", TEXT.replace("casa", ""), "line 3: "),
        ("x.vec", TEXT.replace("8", ""), "line 3: columns .* 1; "),
        ("x.vec", TEXT.replace("8", "8,1"), "line 3: .*'casa' are not all numbers"),
        ("x.vec", TEXT + "x 1 2\n", "line 5: line 1 promises 3"),
        ("x.vec", TEXT.replace("vieja", "la"), "line 4: 'la' is .*line 2 too"),
        ("x.vec", TEXT.replace("8", "nan"), "line 3: 'casa' holds NaN"),
        ("x.vec", TEXT.replace("8", "1e60"), "infinity"),
        ("x.vec", TEXT.replace("casa", "cañón").encode("latin-1"), "line 3: .*UTF-8"),
        ("x.vec.gz", gzip.compress(TEXT.encode(), mtime=0)[:-9], "cut short"),
        ("x.vec.gz", TEXT, "cut short or damaged"),
        (
            "x.bin",
            np.int32([793712314, 12]).tobytes() + bytes(50),
            "no header: .* of fastText, .* give the .vec",
        ),
        ("x.bin", b"", "is empty"),
        ("x.bin", BINARY[:-1], "word 2: 'casa .*: the file ends"),
        ("x.bin", BINARY[:20], "word 2: .*: the file ends"),
        ("x.bin", BINARY[:15], "word 2 is missing"),
        ("x.bin", BINARY + b"x " + BINARY[-8:], "word 3: line 1 promises 2"),
        ("x.bin", BINARY.replace(b"casa", b"la"), "word 2: 'la' is .*word 1 too"),
        ("x.bin", BINARY[:-4] + np.float32("nan").tobytes(), "word 2: 'casa' holds NaN"),
        ("x.bin", BINARY.replace(b"casa", b"\xe9"), "word 2: .*UTF-8"),
        ("x.bin.gz", gzip.compress(BINARY, mtime=0)[:-20], "cut short"),
        ("x.txt", TEXT, "no file of vectors"),
        ("x.vec", TEXT.replace("3 2", "3 2 0"), "line 1: '3 2 0' is no header"),
        ("x.vec", TEXT.replace("0.25 8", "0,25 8"), "line 3: .* with decimal points"),
        (
            "x.vec",
            TEXT.replace(" 8", "  8"),
            "line 3: columns after 'casa': 3; .* one blank between",
        ),
        ("x.vec", TEXT.replace("casa ", "casa\t"), "line 3: columns after .*one blank between"),
        (
            "x.vec",
            TEXT.replace("casa 0.25 8", "casa 0:1 1:2 2:3"),
            "line 3: columns after 'casa': 3",
        ),
        ("x.vec", TEXT.replace("0.25", "1_0"), "line 3: a number after 'casa' holds a _"),
        ("x.bin", TEXT, "holds text, not binary vectors: call it .vec"),
        ("x.bin", f"2 {WIDTH}\nla {ROW}\ncasa {ROW}\n", "call it .vec"),
        ("x.vec", BINARY, "holds binary vectors, not text: call it .bin"),
        ("x.bin", as_binary(">f4"), "order of bytes: write them little-endian"),
        ("x.bin", as_binary("<f2"), "numbers are not float32"),
        ("x.bin", as_binary("<f8"), "numbers are not float32"),
        ("x.bin", as_binary("<f4").replace(b"mi", b"mi casa"), "a word holds a blank"),
    ],
)
def test_a_broken_file_is_one_line_with_the_place(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=says) as refusal:
        load_vector_file(tmp_path / name)
    assert str(tmp_path / name) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("x.vec", TEXT.replace("\n", " \n"), ["la", "casa", "vieja"]),
        ("x.vec", TEXT.replace("\n", "\r\n"), ["la", "casa", "vieja"]),
        ("x.vec", TEXT.replace("casa", "\t"), ["la", "\t", "vieja"]),
        ("x.vec", TEXT.replace("casa", "mi\u00a0casa"), ["la", "mi\u00a0casa", "vieja"]),
        ("x.vec", TEXT.replace("casa", "\u2028"), ["la", "\u2028", "vieja"]),
        ("x.vec", TEXT.replace("casa", "LA"), ["la", "LA", "vieja"]),
        ("x.vec", TEXT.replace("casa", "<unk>"), ["la", "<unk>", "vieja"]),
        ("x.bin", BINARY.replace(b"casa", b"ca\0sa"), ["la", "ca\0sa"]),
        ("x.bin", BINARY + b"\n", ["la", "casa"]),
    ],
)
def test_an_odd_file_that_says_what_it_holds_is_read(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert read_vectors(tmp_path / name)[0] == words

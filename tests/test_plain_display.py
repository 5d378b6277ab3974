"""What a notebook displays is readable in a log; a clone that cannot be written in is said first."""

import pandas as pd
from IPython.core.formatters import DisplayFormatter
from PIL import Image as Picture

from xlingual_nb.report import checkout, notebook_display
from xlingual_nb.report.plain_display import Markdown, plain_text


def plain(shown) -> str:
    """What papermill logs of a displayed object."""
    return DisplayFormatter().format(shown)[0]["text/plain"]


def test_a_table_in_a_log_has_its_words_and_numbers():
    frame = pd.DataFrame(dict(first=["a < b", "c"], second=[0.25, 1 / 3]))
    text = plain(notebook_display.word_table(frame, "name", "A note.", "smoke"))
    lines = text.splitlines()
    assert lines[1:] == ["first | second", "a < b | 0.250", "c | 0.333", "A note."]
    assert notebook_display.NO_RESULT in lines[0]


def test_sentences_and_pictures_in_a_log(tmp_path):
    assert plain(Markdown("**bold** words")) == "**bold** words"
    Picture.new("RGB", (4, 4)).save(tmp_path / "a.png")
    shown = notebook_display.picture(tmp_path / "a.png", alt="two lines that cross")
    assert plain(shown) == "[picture: two lines that cross]"
    assert plain(notebook_display.picture(tmp_path / "a.png")) == "[picture]"


def test_a_long_line_is_cut():
    lines = plain_text(f"<p>{'x' * 500}</p><p>short</p>").splitlines()
    assert len(lines[0]) < 200 and lines[1] == "short"


def test_a_clone_that_cannot_be_written_in_is_said_at_the_head(monkeypatch, capsys):
    checkout.say_read_only()
    assert not capsys.readouterr().out

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(checkout, "TemporaryFile", refuse)
    checkout.say_read_only()
    (line,) = capsys.readouterr().out.splitlines()
    assert "Read-only file system" in line and "-p store=" in line

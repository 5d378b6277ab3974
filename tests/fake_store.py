"""A store for tests: what each run measured is given by a function and written to a file."""

import json

from xlingual_nb.runs.spec import run_id


class FakeStore:
    """A store in a folder.

    `holds(spec)`: what a run measures; `has(spec)`: whether it is there.
    """

    def __init__(self, folder, holds, has=lambda spec: True):
        self.folder, self.holds, self.has = folder, holds, has
        self.root = folder

    def path(self, spec):
        return self.folder / run_id(spec)

    def verified_path(self, spec):
        (home := self.path(spec)).mkdir(parents=True, exist_ok=True)
        (home / "measures.json").write_text(json.dumps(self.holds(spec)), encoding="utf-8")
        return home

"""A store that tells what a test wants it to: its runs hold what a function says, as real ones do,
in a file each.
"""

import json

from xlingual_nb.runs.spec import run_id


class Told:
    """A store in a folder. `holds(spec)`: what a run measures; `has(spec)`: whether it is there."""

    def __init__(self, folder, holds, has=lambda spec: True):
        self.folder, self.holds, self.has = folder, holds, has

    def path(self, spec):
        return self.folder / run_id(spec)

    def sound(self, spec):
        (home := self.path(spec)).mkdir(parents=True, exist_ok=True)
        (home / "measures.json").write_text(json.dumps(self.holds(spec)), encoding="utf-8")
        return home

"""The wheel carries notebooks, reference results and figures, so that it works outside a clone."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "settings.ini",
    "nbs/[0-9]*.ipynb",
    "nbs/*.toml",
    "nbs/batch/*.yaml",
    "results/**/*",
    "figures/*",
    "data/README.md",
    "docs/**/*",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)


class BuildWithNotebooks(build_py):
    """Copy what `xlingual init` unpacks into the package that is built."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        root = Path(__file__).resolve().parent
        target = Path(self.build_lib) / "xlingual_nb" / "shipped"
        for path in (path for pattern in SHIPPED for path in sorted(root.glob(pattern))):
            if path.is_file():
                copy = target / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


setup(cmdclass={"build_py": BuildWithNotebooks})

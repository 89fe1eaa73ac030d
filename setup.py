"""What pyproject.toml cannot say: the extension module, the wheel's tag, the version, and how a build starts.

The version is the one in csrc/pykernel.h, so that the C library and the distribution can never disagree.
"""

from __future__ import annotations

import re
import shutil
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build import build


class CleanBuild(build):
    """Starts from nothing: modules that no longer exist, left in build/lib by an earlier run, get into wheels."""

    def run(self) -> None:
        if not getattr(self, "editable_mode", False):
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def version() -> str:
    """Return MAJOR.MINOR.PATCH of the C header."""
    header = Path(__file__).with_name("csrc").joinpath("pykernel.h").read_text(encoding="utf-8")
    parts = dict(re.findall(r"#define PK_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**parts)


# cffi compiles against the stable ABI; only a build with the GIL may say so in its tag. Compiling takes seconds, and
# timestamps do not notice another PYKERNEL_SANITIZE, so it is never skipped.
options = {"build_ext": {"force": "1"}}
if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    options["bdist_wheel"] = {"py_limited_api": "cp310"}

setup(
    version=version(),
    cffi_modules=["pykernel/_ffi_build.py:builder"],
    cmdclass={"build": CleanBuild},
    options=options,
)

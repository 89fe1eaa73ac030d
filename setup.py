"""What pyproject.toml cannot say: the extension module, the C library beside it, the wheel's tag, the version.

The version is the one in csrc/pykernel.h, so that the C library and the distribution can never disagree.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"


class CleanBuild(build):
    """Starts from nothing: modules that no longer exist, left in build/lib by an earlier run, get into wheels."""

    def run(self) -> None:
        if not getattr(self, "editable_mode", False):
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildWithLibrary(build_ext):
    """Puts the C library for embedders beside the extension, in `pykernel/clib`: compiled from the same sources by the
    same compiler with the same flags, and archived without timestamps, so that a rebuild gives the same file."""

    def run(self) -> None:
        super().run()
        in_place = self.inplace or getattr(self, "editable_mode", False)
        package = ROOT / "pykernel" if in_place else Path(self.build_lib) / "pykernel"
        shutil.rmtree(package / "clib", ignore_errors=True)
        for extension in self.extensions:
            if extension.name == "pykernel._native":
                self._install(extension, package / "clib")

    def _install(self, extension: Extension, prefix: Path) -> None:
        for folder in ("include", "lib/cmake/pykernel", "lib/pkgconfig"):
            (prefix / folder).mkdir(parents=True)
        for header in ("pykernel.h", "pykernel.hpp", "pk_check.h"):
            shutil.copy(CSRC / header, prefix / "include")
        core = [source for source in extension.sources if Path(source).parent == Path("csrc")]
        objects = self.compiler.compile(
            core,
            output_dir=str(Path(self.build_temp) / "clib"),
            include_dirs=["csrc"],
            extra_postargs=extension.extra_compile_args,
        )
        archiver = shlex.split(os.environ.get("AR") or sysconfig.get_config_var("AR") or "ar")
        self.spawn([archiver[0], "rcsD", str(prefix / "lib" / "libpykernel.a"), *objects])
        cmake = prefix / "lib" / "cmake" / "pykernel"
        shutil.copy(CSRC / "cmake" / "wheelConfig.cmake", cmake / "pykernelConfig.cmake")
        fill("wheelConfigVersion.cmake.in", cmake / "pykernelConfigVersion.cmake")
        fill("pykernel.pc.in", prefix / "lib" / "pkgconfig" / "pykernel.pc")


def fill(template: str, target: Path) -> None:
    """Write one of CMake's templates as CMake would for the layout of the wheel."""
    values = {**version_parts(), "PROJECT_VERSION": version(), "up": "../..", "libdir": "lib", "includedir": "include"}
    text = (CSRC / "cmake" / template).read_text(encoding="utf-8")
    target.write_text(re.sub(r"@(\w+)@", lambda found: values[found[1]], text), encoding="utf-8")


def version_parts() -> dict[str, str]:
    header = (CSRC / "pykernel.h").read_text(encoding="utf-8")
    return dict(re.findall(r"#define PK_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header))


def version() -> str:
    """Return MAJOR.MINOR.PATCH of the C header."""
    return "{MAJOR}.{MINOR}.{PATCH}".format(**version_parts())


# cffi compiles against the stable ABI; only a build with the GIL may say so in its tag. Compiling takes seconds, and
# timestamps do not notice another PYKERNEL_SANITIZE, so it is never skipped.
options = {"build_ext": {"force": "1"}}
if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    options["bdist_wheel"] = {"py_limited_api": "cp310"}

setup(
    version=version(),
    cffi_modules=["pykernel/_ffi_build.py:builder"],
    cmdclass={"build": CleanBuild, "build_ext": BuildWithLibrary},
    options=options,
)

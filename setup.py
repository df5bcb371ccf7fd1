"""Builds the compiled modules; where there is no C compiler the same sources run interpreted."""

import multiprocessing
import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError

MODULES = sorted(
    path.with_suffix("") for top in ("costmodel", "sharders") for path in Path(top).rglob("*.pxd")
)
"""Those that have a ``.pxd`` file, which gives them C types."""
FINITE = Path("costmodel/engine/step")
"""Has no infinite numbers: comparisons may become vector instructions."""
OPTIMIZE = os.environ.get("SHARDWISE_OPTIMIZE", "3")
"""gcc's level: checks of what works, not of how fast it is, set 0."""
FLAGS = () if sys.platform == "win32" else (f"-O{OPTIMIZE}", "-g0", "-Wno-attributes")
SHARED_FLAGS = (*FLAGS, f"-O{min(OPTIMIZE, '1')}") if FLAGS else ()
"""No inner loop is there, and it is the longest of all: compiled in less than half the time."""
WARN = 3
"""Level of messages that are shown in any case."""
FINITE_FLAGS = () if sys.platform == "win32" else ("-ffinite-math-only", "-fno-signed-zeros")
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "auto_pickle": False,  # would be a fifth of the C code
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "infer_types": True,
    "nonecheck": False,
}


class BuildIfPossible(build_ext):
    """Builds all modules, or none where there is no C compiler; ``planner doctor`` says which."""

    def finalize_options(self) -> None:
        """Compile as many extensions at once as there are processors, unless told otherwise."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Build all extensions, or leave all out: some alone would find others interpreted."""
        try:
            super().run()
        except (CompileError, ExecError, PlatformError) as error:
            self.announce(f"the search will run interpreted: {error}", level=WARN)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def extension(module: Path) -> Extension:
    """Return one compiled module."""
    flags = [*FLAGS, *(FINITE_FLAGS if module == FINITE else ())]
    return Extension(".".join(module.parts), [f"{module}.py"], extra_compile_args=flags)


PROCESSES = os.cpu_count() if multiprocessing.get_start_method() == "fork" else 0
"""That write C side by side; started otherwise, each would begin by reading this file anew."""
SHARED = "costmodel.engine.cython_shared"
"""What Cython needs in every module, made and compiled once."""
EXTENSIONS = [
    Extension(SHARED, [], extra_compile_args=list(SHARED_FLAGS)),
    *(extension(module) for module in MODULES),
]
setup(
    ext_modules=cythonize(
        EXTENSIONS,
        nthreads=PROCESSES,
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=SHARED,
    ),
    cmdclass={"build_ext": BuildIfPossible},
)

"""Compiled code read from an object file (``planner.object_code``): called without numba.

Only LLVM's linker is needed for that, which takes some 60 ms instead of the 700 ms of numba's
cache, most of which are imports. The code takes addresses of arrays and believes what it is told,
so arguments are compared with what it was compiled for.
"""

import ctypes
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

NUMBERS = {"int64": "q", "uint64": "Q", "float64": "d", "bool": "?"}
"""How ``struct`` writes them, by their names in numpy and numba."""
SLOT = 8
"""Bytes of every argument, as all are passed in a row."""
NEEDED = "needed"
"""Name of the text in an object file that says which functions it calls that are not in it."""
LAYOUT = "{}.layout"
"""Name of the text that says what a function takes and returns, for example
``int64 float64[2]; float64 -> bool``: the parts of a tuple, then a number, make it say yes or no.
An array is followed by how many axes it has."""


class Code:
    """A function of an object file; several threads take turns."""

    def __init__(self, engine: Any, name: str) -> None:  # noqa: ANN401 - llvmlite is untyped
        taken, returned = _text(engine, LAYOUT.format(name)).split(" -> ")
        self.name, self.engine = name, engine  # which frees the code
        self.arguments: list[_Argument] = []
        size = 0
        for kinds in taken.split("; "):
            self.arguments.append(_Argument(kinds.split(), size))
            size += self.arguments[-1].size
        self.is_tuple, kinds = returned.startswith("("), returned.strip("()")
        self.result_format = "".join(NUMBERS[kind] for kind in kinds.split())
        self.block = ctypes.create_string_buffer(size)
        self.lock = Lock()
        self.result = ctypes.create_string_buffer(struct.calcsize(self.result_format))
        signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        self.function = signature(engine.get_function_address(name))

    def __call__(self, *values: Any) -> Any:  # noqa: ANN401 - as numba
        """Call it.

        Raises
        ------
        TypeError
            It was compiled for other arguments.
        RuntimeError
            It has raised something.

        """
        with self.lock:
            for argument, value in zip(self.arguments, values, strict=True):
                if value is not argument.value:
                    argument.take(value, self.block)
            if self.function(self.result, self.block):
                raise RuntimeError(f"compiled code of `{self.name}` failed")
            result = struct.unpack_from(self.result_format, self.result)
        return result if self.is_tuple else result[0]


class _Argument:
    """One argument: its parts, and where they are in the row."""

    def __init__(self, kinds: Sequence[str], offset: int) -> None:
        self.kinds, self.offset = kinds, offset
        self.format = "".join(map(_slots, kinds))
        self.size = struct.calcsize(self.format)
        self.value: Any = None
        """What is in the row now: neither tuples nor where arrays are can change."""

    def take(self, value: Any, block: Any) -> None:  # noqa: ANN401
        """Write a value to the row."""
        self.value = None
        parts = zip(self.kinds, _parts(value), strict=True)
        words = [word for kind, part in parts for word in _words(kind, part)]
        struct.pack_into(self.format, block, self.offset, *words)
        self.value = value


def _slots(kind: str) -> str:
    """Return how the words of one part are written."""
    name, _, axes = kind.rstrip("]").partition("[")
    if axes:
        return "q" * (5 + 2 * int(axes))
    return "d" if NUMBERS[name] == "d" else "q"


def _parts(value: Any) -> Iterator[Any]:  # noqa: ANN401
    if isinstance(value, tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _words(kind: str, part: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return what numba passes for a number, or for an array that it does not count references to.

    That is two null pointers, items, bytes of one, address, and for every axis length and stride.
    """
    if "[" not in kind:
        return (part,)
    if f"{part.dtype}[{part.ndim}]" != kind or not part.flags.c_contiguous:
        raise TypeError(f"compiled code takes {kind}, got {part.dtype}[{part.ndim}]")
    return (0, 0, part.size, part.itemsize, part.ctypes.data, *part.shape, *part.strides)


def _text(engine: Any, name: str) -> str:  # noqa: ANN401
    return ctypes.string_at(engine.get_global_value_address(name)).decode()


def processor() -> tuple[str, str]:
    """Return the name of this processor and what it can do, as LLVM writes them."""
    import llvmlite.binding as llvm

    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM cannot tell on every system
        features = ""
    return llvm.get_host_cpu_name(), features


def sealed(code: bytes) -> bytes:
    """Return what a file has of object code: its digest, then itself."""
    return sha256(code).digest() + code


def read(path: Path, names: Sequence[str]) -> Mapping[str, Code]:
    """Return functions of an object file, by their names.

    Raises
    ------
    OSError
        There is no such file.
    RuntimeError
        It is not what was written, or calls what is not there.

    """
    content = path.read_bytes()
    code = content[sha256().digest_size :]
    if content != sealed(code):  # LLVM would end the process
        raise RuntimeError(f"no object code, or not all of it: {path}")
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    missing = [each for each in _text(engine, NEEDED).split() if not llvm.address_of_symbol(each)]
    if missing:  # LLVM would call address 0
        raise RuntimeError(f"object code calls functions that are not there: {missing}")
    return {name: Code(engine, name) for name in names}


if __name__ == "__main__":  # a trial, as LLVM ends a process where it cannot link
    read(Path(sys.argv[1]), sys.argv[2:])

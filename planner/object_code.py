"""Object code of what numba has compiled: a file from which it is called without numba.

The functions are linked into one module, beside each a small one that C could call: numba passes
every number of an argument by itself, some 800 for the annealer; the small function takes them from
a row (``planner.machine_code``). All else is made private, so that what nobody calls is left out:
the functions that Python calls through numba need numba's own library.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from costmodel.execution.native_code import Native
from planner.machine_code import LAYOUT, NEEDED, NUMBERS, processor, sealed

Calls = dict[Native, tuple[Any, ...]]
"""Functions, and arguments they have been called with."""


@contextmanager
def noted(functions: Iterable[Native]) -> Iterator[Calls]:
    """Note what functions are called with meanwhile."""
    calls: Calls = {}

    def note(function: Native, *arguments: Any) -> Any:  # noqa: ANN401
        calls[function] = arguments
        return function.dispatcher(*arguments)

    for function in functions:
        function.code = partial(note, function)
    try:
        yield calls
    finally:
        for function in functions:
            function.code = None


def write(path: Path, calls: Calls) -> None:
    """Write the object code of functions, for arguments such as they have been called with.

    Raises
    ------
    OSError
        There is no place for it.
    RuntimeError
        It cannot be run without numba, or LLVM cannot make it; nothing is written.

    """
    draft = path.with_suffix(f".{os.getpid()}.o")
    draft.write_bytes(sealed(_linked(calls)))
    names = [function.name for function in calls]
    command = [sys.executable, "-m", "planner.machine_code", str(draft), *names]
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own module
        draft.replace(path)
    except subprocess.CalledProcessError as error:
        raise RuntimeError("compiled code needs numba") from error
    finally:
        draft.unlink(missing_ok=True)


def _linked(calls: Calls) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly("")
    for function, arguments in calls.items():
        compiled, text = _compiled(function, arguments)
        module.link_in(llvm.parse_assembly(text))
        called = module.get_function(compiled.fndesc.llvm_func_name)
        caller = _caller(function.name, called, _layout(compiled.signature))
        module.link_in(llvm.parse_assembly(caller))
    names = [function.name for function in calls]
    kept = {*names, *map(LAYOUT.format, names)}
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name not in kept:
            each.linkage = "internal"
    cpu, features = processor()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, codemodel="jitdefault", jit=True
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes.run(module, llvm.create_pass_builder(machine, options))
    module.link_in(llvm.parse_assembly(_constant(NEEDED, " ".join(_needed(module)))))
    code: bytes = machine.emit_object(module)
    return code


def _compiled(function: Native, arguments: Sequence[Any]) -> tuple[Any, str]:
    """Return what numba has made of a function for such arguments, and that in LLVM's language."""
    from numba import typeof

    kinds = tuple(map(typeof, arguments))
    compiled = function.dispatcher.overloads[kinds]
    with catch_warnings(action="ignore"):
        text: str = compiled.library.get_llvm_str()
    if compiled.fndesc.llvm_func_name not in text:  # it comes from numba's cache, without its text
        function.dispatcher.recompile()
        compiled = function.dispatcher.overloads[kinds]
        text = compiled.library.get_llvm_str()
    return compiled, text


def _caller(name: str, called: Any, layout: str) -> str:  # noqa: ANN401
    """Return a function in LLVM's language that calls another with what lies in a row."""
    result, error, *types = [str(argument.type) for argument in called.arguments]
    loads = [
        line
        for slot, kind in enumerate(types)
        for line in (
            f"%at{slot} = getelementptr i64, ptr %row, i64 {slot}",
            f"%value{slot} = load {kind}, ptr %at{slot}",
        )
    ]
    passed = ", ".join(f"{kind} %value{slot}" for slot, kind in enumerate(types))
    return "\n".join([
        f"declare i32 @{called.name}({', '.join([result, error, *types])})",
        _constant(LAYOUT.format(name), layout),
        f"define i32 @{name}(ptr %result, ptr %row) {{",
        "%error = alloca ptr",
        *loads,
        f"%status = call i32 @{called.name}(ptr %result, ptr %error, {passed})",
        "ret i32 %status",
        "}",
    ])


def _constant(name: str, text: str) -> str:
    return f'@{name} = constant [{len(text) + 1} x i8] c"{text}\\00"'


def _needed(module: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield functions that are called, but not in a module: also where LLVM has its own names."""
    import llvmlite.binding as llvm

    for function in module.functions:
        name = function.name
        if function.is_declaration and not name.startswith("llvm."):
            yield name
        elif function.is_declaration and llvm.address_of_symbol(name.split(".")[1]):
            yield name.split(".")[1]  # ``llvm.exp.f64`` may become ``exp``


def _layout(signature: Any) -> str:  # noqa: ANN401
    """Return what a function takes and returns (``planner.machine_code.LAYOUT``)."""
    from numba import types

    taken = "; ".join(" ".join(_kinds(each)) for each in signature.args)
    returned = " ".join(_kinds(signature.return_type))
    is_tuple = isinstance(signature.return_type, types.BaseTuple)
    return f"{taken} -> {f'({returned})' if is_tuple else returned}"


def _kinds(kind: Any) -> Iterator[str]:  # noqa: ANN401
    from numba import types

    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        for part in parts:
            yield from _kinds(part)
    elif isinstance(kind, types.Array) and kind.layout == "C":
        yield f"{kind.dtype}[{kind.ndim}]"
    elif str(kind) in NUMBERS:
        yield str(kind)
    else:
        raise RuntimeError(f"compiled code takes {kind}, which is not passed in a row")

"""Pickles read as plain data: nothing that a file names is looked up, imported, called or changed.

``pickle`` runs what a file says, and guarding it by ``find_class`` is not enough: a pickle may set
attributes of whatever it was given, classes and functions included. Here its operations are carried
out one by one, and only on data: the name of a class stays a ``Name``, an object becomes a
``PickledObject``.

Format: Python, Lib/pickletools.py, which also takes the operations apart.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MOST_OPERATIONS = 3_000_000
"""Most operations of a pickle, which take seconds; a plan of 10,000 tables on 128 ranks needs a
third."""

Rebuild: TypeAlias = Callable[..., Any]
_SIMPLE = (str, int, float, bytes, type(None))
"""Types that keys may have: hashing a deep tuple overflows the stack."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that a pickle names."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Module and name, as messages have them."""
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class PickledObject:
    """An object of a class that is not looked up, with everything that the pickle put into it."""

    of: Name
    arguments: tuple[Any, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    """Its attributes."""
    entries: dict[Any, Any] = field(default_factory=dict)
    """The items of a mapping."""
    members: list[Any] = field(default_factory=list)
    """The items of a list or a set."""


def _no_storages(_: object) -> object:
    raise ValueError("it holds tensors")


def load_pickle(
    data: bytes,
    *,
    rebuild: Mapping[str, Rebuild] | None = None,
    persistent: Callable[[Any], Any] = _no_storages,
) -> Any:  # noqa: ANN401 - whatever was pickled
    """Return what a pickle holds, objects as ``PickledObject``.

    Parameters
    ----------
    data
        The pickle.
    rebuild
        By path, our functions that are called in the place of those that the pickle names.
    persistent
        Returns what stands for something outside of the pickle.

    Raises
    ------
    ValueError
        It is no pickle, or not one of plain data.

    """
    reader = _PickleReader(rebuild or {}, persistent)
    try:
        for number, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if number >= MOST_OPERATIONS:
                raise ValueError(f"a pickle of more than {MOST_OPERATIONS:,} operations")
            if operation.name == "STOP":
                return reader.stack.pop()
            reader.take(operation.name, argument)
    except (IndexError, KeyError, TypeError, OverflowError, UnicodeError) as error:
        raise ValueError(f"not readable as data: {str(error)[:80]}") from None
    raise ValueError("not readable as data: it has no end")


class _PickleReader:
    """The stack and the memo of a pickle being read."""

    def __init__(self, rebuild: Mapping[str, Rebuild], persistent: Callable[[Any], Any]) -> None:
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks under each mark."""
        self._memory: dict[int, Any] = {}
        self._rebuild = rebuild
        self._persistent = persistent

    def take(self, name: str, argument: Any) -> None:  # noqa: ANN401 - of any type
        """Carry out one operation."""
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            self.stack[-count:] = [tuple(self.stack[len(self.stack) - count :])]
        elif name in _STORED:
            self._memory[len(self._memory) if argument is None else argument] = self.stack[-1]
        elif name in _RECALLED:
            self.stack.append(self._memory[argument])
        elif name in _METHODS:
            _METHODS[name](self, argument)
        elif name not in {"PROTO", "FRAME"}:
            raise ValueError(f"not readable as data: it uses {name}")

    def _marked(self) -> list[Any]:
        above, self.stack = self.stack, self._below.pop()
        return above

    def mark(self, _: object) -> None:
        """Begin a new stack above the present one."""
        self._below.append(self.stack)
        self.stack = []

    def pop(self, _: object) -> None:
        """Drop the last value, or the last mark."""
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self._below.pop()

    def pop_mark(self, _: object) -> None:
        """Drop all values above the last mark."""
        self._marked()

    def duplicate(self, _: object) -> None:
        """Push the last value again."""
        self.stack.append(self.stack[-1])

    def make_tuple(self, _: object) -> None:
        """Replace the values above the last mark by a tuple of them."""
        above = self._marked()
        self.stack.append(tuple(above))

    def make_list(self, _: object) -> None:
        """Replace the values above the last mark by a list of them."""
        above = self._marked()
        self.stack.append(above)

    def make_dict(self, _: object) -> None:
        """Replace the values above the last mark by a mapping of them."""
        above = self._marked()
        self.stack.append({})
        self._set_items(above)

    def append(self, _: object) -> None:
        """Add a value to a list."""
        value = self.stack.pop()
        self._extend([value])

    def appends(self, _: object) -> None:
        """Add the values above the last mark to a list."""
        self._extend(self._marked())

    def _extend(self, values: list[Any]) -> None:
        holder = self.stack[-1]
        (holder.members if isinstance(holder, PickledObject) else _as(list, holder)).extend(values)

    def set_item(self, _: object) -> None:
        """Add a pair to a mapping."""
        pair = self.stack[-2:]
        del self.stack[-2:]
        self._set_items(pair)

    def set_all(self, _: object) -> None:
        """Add the pairs above the last mark to a mapping."""
        self._set_items(self._marked())

    def _set_items(self, flat: list[Any]) -> None:
        """Put keys and values, in turn in ``flat``, into the mapping on top of the stack."""
        holder = self.stack[-1]
        entries = holder.entries if isinstance(holder, PickledObject) else _as(dict, holder)
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            entries[_as(_SIMPLE, key)] = value

    def make_global(self, argument: str) -> None:
        """Push the name of a class or function."""
        module, _, name = argument.partition(" ")
        self.stack.append(Name(module, name))

    def stack_global(self, _: object) -> None:
        """Push the name of a class or function that the last two values give."""
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Name(_as(str, module), _as(str, name)))

    def made(self, _: object) -> None:
        """Push an object made from a name and arguments."""
        arguments, of = self.stack.pop(), self.stack.pop()
        made = self._rebuild.get(_as(Name, of).path)
        arguments = _as(tuple, arguments)
        self.stack.append(made(*arguments) if made else PickledObject(of, arguments))

    def made_by_name(self, _: object) -> None:
        """Push an object made from a name and arguments, leaving out keyword arguments."""
        self.stack.pop()
        self.made(None)

    def build(self, _: object) -> None:
        """Put state into an object.

        A class with slots pickles a pair, the second being its slots.
        """
        state = self.stack.pop()
        holder = _as(PickledObject, self.stack[-1])
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                holder.state.update({_as(str, key): value for key, value in part.items()})

    def persistent_id(self, _: object) -> None:
        """Push what stands for something outside of the pickle."""
        self.stack.append(self._persistent(self.stack.pop()))


def _as(kind: Any, value: Any) -> Any:  # noqa: ANN401 - a type, or several
    """Return a value if it has a type, as what follows needs; else raise."""
    if not isinstance(value, kind):
        raise ValueError(  # noqa: TRY004 - what a file says, not what a caller does
            f"not readable as data: a {type(value).__name__} in the wrong place"
        )
    return value


_PUSHED = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_DICT": dict,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_STORED = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_RECALLED = {"GET", "BINGET", "LONG_BINGET"}
_METHODS: Mapping[str, Callable[[_PickleReader, Any], None]] = {
    "MARK": _PickleReader.mark,
    "POP": _PickleReader.pop,
    "POP_MARK": _PickleReader.pop_mark,
    "DUP": _PickleReader.duplicate,
    "TUPLE": _PickleReader.make_tuple,
    "LIST": _PickleReader.make_list,
    "DICT": _PickleReader.make_dict,
    "APPEND": _PickleReader.append,
    "APPENDS": _PickleReader.appends,
    "ADDITEMS": _PickleReader.appends,
    "FROZENSET": _PickleReader.make_list,
    "SETITEM": _PickleReader.set_item,
    "SETITEMS": _PickleReader.set_all,
    "GLOBAL": _PickleReader.make_global,
    "STACK_GLOBAL": _PickleReader.stack_global,
    "REDUCE": _PickleReader.made,
    "NEWOBJ": _PickleReader.made,
    "NEWOBJ_EX": _PickleReader.made_by_name,
    "BUILD": _PickleReader.build,
    "BINPERSID": _PickleReader.persistent_id,
}

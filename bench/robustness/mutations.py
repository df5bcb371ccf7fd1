"""Mutated inputs, the same for the same seed: bytes, words and numbers, and members of archives."""

import io
import re
import zipfile
from collections.abc import Callable, Sequence
from random import Random

NASTY = (
    "0", "-1", "1", "0.0", "-0.0", "1e308", "1.7e308", "1e-320", "1e999", "2147483648",
    "4611686018427387904", "9223372036854775807", "9223372036854775808", "1" + "0" * 30,
    "9" * 5000, "NaN", "Infinity", "-Infinity", ".inf", ".nan", '""', "null", "~", "true", "[]",
    "{}", "[[[[]]]]", "[1]", "{a: 1}", '{"a": 1}', '"x"', '!!int ""', "!!float x", "!!binary x",
    "!!timestamp x", "&a [*a]", "*a", "<<", "0x" + "f" * 5000, "1_000", "1:2:3", "=", "\\u0000",
    "'", '"', "{", "[", "]", "}", ",", ":", "- - -", "\t", "\x00", "\x1b[2J", "☃", "data_parallel",
    "table_row_wise", "fused_uvm_caching", "dlrm", "none", "x" * 3000,
)  # fmt: skip
_WORD = re.compile(rb"[A-Za-z0-9_.+-]+")
_LIST = re.compile(rb"\[([^\[\]{}]*[0-9][^\[\]{}]*)\]")
"""Brackets with numbers, as in JSON and in one line of YAML."""
_MOST = 4
"""Mutations of one input."""
_LARGEST = 200_000


def mutated(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    """Return data with some mutations; parts may come from other inputs of the corpus."""
    if data[:2] == b"PK" and rng.random() < 0.7:
        return _member_mutated(data, rng)
    for _ in range(rng.randint(1, _MOST)):
        data = rng.choice(_MUTATIONS)(data, rng)
    if others and rng.random() < 0.05:
        other = rng.choice(others)
        cut = rng.randrange(len(data) + 1)
        data = data[:cut] + other[rng.randrange(len(other) + 1) :]
    return data[:_LARGEST]


def _place(data: bytes, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _set(data: bytes, rng: Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    value = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return data[:at] + bytes([value]) * rng.choice((1, 4, 8)) + data[at + 1 :]


def _cut(data: bytes, rng: Random) -> bytes:
    first, last = sorted((_place(data, rng), _place(data, rng)))
    return data[:first] if rng.random() < 0.3 else data[:first] + data[last:]


def _repeat(data: bytes, rng: Random) -> bytes:
    first = _place(data, rng)
    part = data[first : first + rng.randint(1, 60)]
    return data[:first] + part * rng.choice((2, 3, 50)) + data[first:]


def _insert(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.choice(NASTY).encode() + data[at:]


def _word(data: bytes, rng: Random) -> bytes:
    """Put something nasty in the place of a word or a number."""
    words = list(_WORD.finditer(data))
    if not words:
        return _insert(data, rng)
    word = rng.choice(words)
    return data[: word.start()] + rng.choice(NASTY).encode() + data[word.end() :]


def _in_list(data: bytes, rng: Random) -> bytes:
    """Change a number inside brackets, or how many there are."""
    lists = list(_LIST.finditer(data))
    if not lists:
        return _word(data, rng)
    found = rng.choice(lists)
    items = found[1].split(b",")
    at, action = rng.randrange(len(items)), rng.randrange(4)
    if action < 2:
        items[at] = rng.choice(NASTY).encode()
    elif action == 2:
        items[at:at] = items[at : at + 1] * rng.choice((1, 1, 2000))
    else:
        del items[at]
    return data[: found.start(1)] + b",".join(items) + data[found.end(1) :]


def _swap(data: bytes, rng: Random) -> bytes:
    """Let two words trade places."""
    words = list(_WORD.finditer(data))
    if len(words) < 2:
        return data
    first, second = sorted(rng.sample(words, 2), key=lambda word: word.start())
    middle = data[first.end() : second.start()]
    return data[: first.start()] + second[0] + middle + first[0] + data[second.end() :]


def _lines(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines) if rng.random() < 0.3 else lines.insert(0, rng.choice(lines))
    return b"\n".join(lines)


def _nest(data: bytes, rng: Random) -> bytes:
    at, depth = _place(data, rng), rng.choice((3, 60, 3000))
    opening = rng.choice((b"[", b'{"a":', b"- ", b"("))
    return data[:at] + opening * depth + data[at:]


_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _word, _word, _word, _word, _in_list, _in_list, _swap, _flip, _set, _cut, _repeat, _insert,
    _lines, _nest,
)  # fmt: skip


def _member_mutated(data: bytes, rng: Random) -> bytes:
    """Mutate a file inside an archive, its name, or how it is packed; checksums stay right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, OSError):
        return _flip(data, rng)
    name = rng.choice(sorted(members))
    action = rng.random()
    if action < 0.8:
        members[name] = mutated(members[name], (), rng)
    elif action < 0.9:
        members[rng.choice(("constants.pkl", "code/x.py", "data.pkl", "../x", "a/" * 50))] = (
            members.pop(name)
        )
    else:
        del members[name]
    made = io.BytesIO()
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(made, "w", packing) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return made.getvalue()

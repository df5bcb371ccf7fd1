"""What Perfetto's importer makes of a Chrome trace: its rules, written down to be tested against.

The importer itself is a binary that is fetched from the net when it is first used. Its rules
were read off google/perfetto at ec5d16b1, folder ``src/trace_processor/importers``:
``json/json_trace_tokenizer.cc`` (types, thread 0), ``json/json_trace_parser.cc`` (phases, names),
``common/slice_tracker.cc`` (which slices nest), ``common/flow_tracker.cc`` (arrows).
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Thread = tuple[int, int]


@dataclass
class Imported:
    """Slices and arrows by what Perfetto shows, and what it complains about."""

    problems: Counter[str] = field(default_factory=Counter)
    """Under the names of Perfetto's statistics (``storage/stats.h``)."""
    slices: dict[Thread, list[Event]] = field(default_factory=lambda: defaultdict(list))
    threads: dict[Thread, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    arrows: list[tuple[Event, Event]] = field(default_factory=list)


def perfetto(text: str) -> Imported:
    """Import the text of a trace file."""
    assert text.lstrip().startswith('{"')  # else it is not taken for JSON
    importer = _Importer()
    events = json.loads(text)["traceEvents"]
    kept = [event for event in events if importer.is_sound(event)]
    for event in sorted(kept, key=lambda event: _ns(event.get("ts", 0))):
        importer.take(event)
    return importer.found


def _ns(number: float) -> int:
    return round(number * 1000)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _thread(event: Event) -> Thread:
    """No thread, or thread 0, is the main thread of the process."""
    return event["pid"], event.get("tid") or event["pid"]


class _Importer:
    def __init__(self) -> None:
        self.found = Imported()
        self._stacks: dict[Thread, list[Event]] = defaultdict(list)
        self._begun: dict[tuple[object, str, str], Event] = {}

    def is_sound(self, event: Event) -> bool:
        """Tokenize: a phase, a time of every event but names, whole numbers of threads."""
        numbers = [event.get(key) for key in ("pid", "tid")]
        sound = (
            isinstance(event.get("ph"), str)
            and (event["ph"] == "M" or _is_number(event.get("ts")))
            and all(isinstance(number, int) and 0 <= number < 2**32 for number in numbers)
        )
        self.found.problems["json_tokenizer_failure"] += not sound
        return sound

    def take(self, event: Event) -> None:
        take = {"X": self._slice, "M": self._name, "s": self._begin, "f": self._end}
        take[event["ph"]](event)

    def _name(self, event: Event) -> None:
        if event["name"] == "thread_name":
            self.found.threads[_thread(event)] = event["args"]["name"]
        elif event["name"] == "process_name":
            self.found.processes[event["pid"]] = event["args"]["name"]

    def _slice(self, event: Event) -> None:
        if not _is_number(event.get("dur")) or event["dur"] < 0:
            self.found.problems["json_parser_failure"] += 1
            return
        stack = self._stacks[_thread(event)]
        start, end = _ns(event["ts"]), _ns(event["ts"]) + _ns(event["dur"])
        while stack:
            open_start = _ns(stack[-1]["ts"])
            open_end = open_start + _ns(stack[-1]["dur"])
            moments = start == end and open_start == open_end
            if open_end < start or (open_end == start and not moments):
                stack.pop()
                continue
            break
        if any(start < _ns(s["ts"]) + _ns(s["dur"]) < end for s in stack):
            self.found.problems["slice_spill_overlapping_complete_event"] += 1
            return
        stack.append(event)
        self.found.slices[_thread(event)].append(event)

    def _begin(self, event: Event) -> None:
        stack = self._stacks[_thread(event)]
        if not stack:
            self.found.problems["flow_no_enclosing_slice"] += 1
        elif self._key(event) in self._begun:
            self.found.problems["flow_duplicate_id"] += 1
        else:
            self._begun[self._key(event)] = stack[-1]

    def _end(self, event: Event) -> None:
        stack, source = self._stacks[_thread(event)], self._begun.get(self._key(event))
        assert event.get("bp") == "e"  # else it ends at the next slice of the thread
        if not stack:
            self.found.problems["flow_no_enclosing_slice"] += 1
        elif source is None:
            self.found.problems["flow_end_without_start"] += 1
        else:
            self.found.arrows.append((source, stack[-1]))

    def _key(self, event: Event) -> tuple[object, str, str]:
        return event["id"], event["cat"], event["name"]

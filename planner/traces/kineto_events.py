"""The events of a profiler (Kineto) trace: host calls and GPU work.

References
----------
Kineto, ``libkineto/src/output_json.cpp``: event categories and arguments.

"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from costmodel.base.units import US, Bytes, Seconds

DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CALLS = ("cuda_runtime", "cuda_driver")
_SCOPES = ("cpu_op", "user_annotation")
_LARGEST = 1e18
"""Largest time stamp; in microseconds since 1970 they are 1.7e15, in nanoseconds near this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A kernel, copy or fill that the GPU ran."""

    name: str
    kind: str
    """kernel, memcpy or memset."""
    stream: int
    start: Seconds
    end: Seconds
    correlation: int
    """Number that the call which launched it has, too."""
    num_bytes: Bytes = 0.0
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """An operator or annotation on a host thread."""

    name: str
    thread: int
    start: Seconds
    end: Seconds
    annotation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the CUDA runtime, and the operators it was made in."""

    name: str
    thread: int
    start: Seconds
    end: Seconds
    correlation: int
    scopes: tuple[str, ...] = ()
    """Names of the operators around it, the outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWait:
    """A stream's wait for an event of another stream, as newer profilers record it."""

    correlation: int
    """Correlation of the call that made it wait."""
    waiting_stream: int
    recorded_on: int
    """Stream of the event."""
    recorded_at: int
    """Correlation of the call that recorded the event."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that a clock or counter could show."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _LARGEST


def _number(value: object) -> float:
    if not is_number(value):
        raise ValueError("not a number")
    return float(value)


def _whole(value: object) -> int:
    return int(_number(value))


def is_collective(activity: Activity) -> bool:
    """Return whether an activity is a kernel of a communication library."""
    return activity.kind == "kernel" and activity.name.lower().startswith(("nccl", "rccl"))


def is_graph_launch(name: str) -> bool:
    """Return whether a call of that name launches a CUDA graph: many kernels at once."""
    return "GraphLaunch" in name


def starts_collective(call: Call) -> bool:
    """Return whether a call is part of starting a collective."""
    return any(name.startswith(("c10d::", "nccl:")) for name in call.scopes)


class EventReader:
    """Collects the events of one file."""

    def __init__(self, offset: float) -> None:
        self.offset = offset
        self.calls: list[Call] = []
        self.scopes: list[Scope] = []
        self.activities: list[Activity] = []
        self.waits: list[RecordedWait] = []
        self.pid: int | None = None
        self.num_broken = 0
        """Number of events without a time, a thread or a stream that they need."""

    def event(self, event: Any) -> None:  # noqa: ANN401 - from a file
        """Add one event; other kinds are ignored."""
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category, args = event.get("cat"), event.get("args")
        args = args if isinstance(args, dict) else {}
        try:
            start = (_number(event["ts"]) + self.offset) * US
            end = start + max(0.0, _number(event.get("dur", 0))) * US
            name = str(event["name"])
            if category in DEVICE:
                self._activity(name, str(category), start, end, args)
            elif category in CALLS:
                self._call(name, event, start, end, _whole(args.get("correlation", -1)))
            elif category in _SCOPES:
                self.scopes.append(
                    Scope(
                        name=name,
                        thread=_whole(event["tid"]),
                        start=start,
                        end=end,
                        annotation=category == "user_annotation",
                    )
                )
            elif category == "cuda_sync" and "wait_on_cuda_event_record_corr_id" in args:
                self._wait(args)
        except (KeyError, TypeError, ValueError):
            self.num_broken += category in (*DEVICE, *CALLS, *_SCOPES)

    def _call(
        self, name: str, event: Mapping[str, Any], start: float, end: float, correlation: int
    ) -> None:
        thread = _whole(event["tid"])
        self.pid = event["pid"] if isinstance(event.get("pid"), int) else self.pid
        self.calls.append(
            Call(name=name, thread=thread, start=start, end=end, correlation=correlation)
        )

    def _wait(self, args: Mapping[str, Any]) -> None:
        self.waits.append(
            RecordedWait(
                correlation=_whole(args.get("correlation", -1)),
                waiting_stream=_whole(args.get("stream", -1)),
                recorded_on=_whole(args.get("wait_on_stream", -1)),
                recorded_at=_whole(args["wait_on_cuda_event_record_corr_id"]),
            )
        )

    def _activity(
        self, name: str, category: str, start: float, end: float, args: dict[str, Any]
    ) -> None:
        self.activities.append(
            Activity(
                name=name,
                kind=DEVICE[category],
                stream=_whole(args["stream"]),
                start=start,
                end=end,
                correlation=_whole(args.get("correlation", -1)),
                num_bytes=_number(args.get("bytes", 0)),
                args=args,
            )
        )

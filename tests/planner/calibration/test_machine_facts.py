import pytest

pytest.importorskip("torch")

from planner.calibration.machine import keeps_memory, other_facts, ranks_per_node


def test_what_has_changed_is_named_but_for_the_date() -> None:
    before = {"num_ranks": 2, "name": "core", "date": "2026-01-02"}
    now = {"num_ranks": 1, "name": "core", "date": "2026-01-03", "device": "cpu"}
    assert other_facts(before, now) == [
        "device: None before, cpu now",
        "num_ranks: 2 before, 1 now",
    ]
    assert other_facts(before, {**before, "date": "2027-01-01"}) == []


def test_memory_is_kept_by_one_arena_that_maps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert not keeps_memory()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert keeps_memory()


def test_one_process_on_a_node_of_eight_gpus_measures_one_of_eight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    assert ranks_per_node("cuda", 1) == 8
    assert ranks_per_node("cpu", 2) == 2

import pytest

from bench.accuracy import basis
from costmodel.domain.hardware import Source


def test_every_second_of_the_critical_path_rests_on_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "README's tables.yaml, 8 GPUs"
    jobs = {name: basis.jobs()[name]}
    monkeypatch.setattr(basis, "jobs", lambda: jobs)
    found = basis.results()
    stages = found[name]["stages"]
    seconds = sum(sum(each.values()) for each in stages.values())
    assert seconds == pytest.approx(found[name]["step_s"], rel=1e-9)
    assert set(stages) <= set(basis.COLUMNS)
    # host times and collectives of a node of this profile are fitted
    assert {"host", "all_reduce"} <= stages[Source.FITTED].keys()
    assert name in basis.basis_table(found)


def test_only_what_lies_in_an_interval_is_covered() -> None:
    assert basis._covered(1.0, 3.0, [(0.0, 1.5), (1.2, 2.0), (2.5, 9.0)]) == pytest.approx(1.5)
    assert basis._covered(1.0, 3.0, [(3.0, 4.0)]) == 0.0

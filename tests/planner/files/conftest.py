from typing import Any

import pytest
import yaml


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """What PyYAML is asked to parse texts with: its parser in C is ten times as fast."""
    used: list[type] = []
    compose = yaml.compose

    def noted(text: str, Loader: type) -> Any:  # noqa: ANN401, N803 - as yaml.compose
        used.append(Loader)
        return compose(text, Loader=Loader)

    monkeypatch.setattr(yaml, "compose", noted)
    return used

"""Pages are read as a reader does: one shell from top to bottom, and what is shown is compared."""

import subprocess
from pathlib import Path

import pytest

from bench.documented import alike, run_page, shown_outputs, with_outputs

PAGE = """
<!-- run -->
```sh
mkdir own && cd own
```

<!-- file: said.txt -->
```yaml
it took 2.00 ms
```

<!-- run -->
```sh
cat said.txt; echo "$LIMIT"
```

<!-- begin output -->
```text
it took 1.99 ms
```
<!-- end output -->

<!-- run -->
```sh
echo "$LIMIT"
```
"""


def test_blocks_run_in_one_shell_and_hurry_where_nothing_is_shown(tmp_path: Path) -> None:
    ran = run_page(PAGE, tmp_path, {}, {"LIMIT": "short"})
    assert [printed for _, printed in ran] == ["", "it took 2.00 ms\n\n", "short\n"]
    assert (tmp_path / "checkout" / "own" / "said.txt").exists()
    ((shown, printed),) = shown_outputs(PAGE, ran)
    assert alike(shown, printed)
    assert "it took 2.00 ms" in with_outputs(PAGE, ran)


def test_the_block_that_fails_is_named_with_what_it_printed(tmp_path: Path) -> None:
    page = PAGE.replace("cat said.txt", "cat said.txt; false")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_page(page, tmp_path, {}, {})
    assert failed.value.cmd.startswith("cat said.txt")
    assert failed.value.output == "it took 2.00 ms\n"


def test_a_page_shows_what_is_printed_if_words_are_the_same_and_numbers_close() -> None:
    shown = "step  10.1 ms  ████  1,000 plans"
    assert alike(shown, "step 10.2 ms ██ 1,010 plans")
    assert not alike(shown, "step 10.4 ms ████ 1,000 plans")
    assert not alike(shown, "steps 10.1 ms ████ 1,000 plans")
    assert not alike("rank 0", "rank 1")

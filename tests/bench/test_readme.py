from bench.readme import README, TABLES, filled


def test_the_readme_quotes_the_committed_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert filled(text, {name: table() for name, table in TABLES.items()}) == text


def test_every_table_has_its_place() -> None:
    text = README.read_text(encoding="utf-8")
    assert all(f"<!-- begin {name} -->" in text for name in (*TABLES, "screen"))

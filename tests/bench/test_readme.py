from bench.readme import PAGES, TABLES, filled


def test_pages_quote_the_committed_results() -> None:
    tables = {name: table() for name, table in TABLES.items()}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, tables) == text, page.name


def test_every_table_has_its_place() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(f"<!-- begin {name} -->" in text for name in (*TABLES, "screen"))


def test_the_pages_that_show_the_first_screen_show_the_same() -> None:
    shown = {
        text.partition("<!-- begin screen -->")[2].partition("<!-- end screen -->")[0]
        for text in (page.read_text(encoding="utf-8") for page in PAGES)
        if "<!-- begin screen -->" in text
    }
    assert len(shown) == 1


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 150

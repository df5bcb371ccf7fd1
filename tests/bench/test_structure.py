from pathlib import Path

import pytest

from bench.structure import (
    ROOT,
    Checkout,
    fragments,
    module_circles,
    package_cycles,
    search_modules,
    shared_class_names,
    step_modules,
)


@pytest.fixture(scope="module")
def checkout() -> Checkout:
    return Checkout(ROOT)


def write(root: Path, **files: str) -> Checkout:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Checkout(root)


@pytest.mark.slow
def test_no_packages_import_each_other(checkout: Checkout) -> None:
    assert package_cycles(checkout) == []


@pytest.mark.slow
def test_no_modules_import_each_other(checkout: Checkout) -> None:
    assert module_circles(checkout) == []


@pytest.mark.slow
def test_no_name_stands_for_two_classes(checkout: Checkout) -> None:
    assert shared_class_names(checkout) == {}


@pytest.mark.slow
def test_docstrings_are_no_fragments(checkout: Checkout) -> None:
    assert fragments(checkout) == []


@pytest.mark.slow
def test_reading_lists_are_of_what_is_asked(checkout: Checkout) -> None:
    step, search = step_modules(checkout), search_modules(checkout)
    assert {"costmodel.step.simulator", "costmodel.engine.step"} <= {each.name for each in step}
    assert "sharders.annealing.schedule" in {each.name for each in search}
    assert not [each for each in search if each.name.startswith("sharders.baselines")]


def test_a_ring_of_packages_is_found_through_lazy_imports(tmp_path: Path) -> None:
    made = write(
        tmp_path,
        bench__a__x="def f():\n    from bench.b import y\n",
        bench__b__y="import bench.c.z\n",
        bench__c__z="from bench.a.x import f\n",
        bench__d__w="from bench.a.x import f\n",
    )
    assert package_cycles(made) == [["bench.a", "bench.b", "bench.c"]]


def test_a_circle_of_modules_is_found_through_lazy_imports_and_those_for_types(
    tmp_path: Path,
) -> None:
    made = write(
        tmp_path,
        bench__a="from bench.b import y\n",
        bench__b="if TYPE_CHECKING:\n    import bench.c\n",
        bench__c="def f():\n    from bench import a\n",
        bench__d="from bench.a import f\n",
        bench__e="",
    )
    assert module_circles(made) == [["bench.a", "bench.b", "bench.c"]]
    assert package_cycles(made) == []


def test_names_of_two_classes_and_fragments_are_found(tmp_path: Path) -> None:
    made = write(
        tmp_path,
        bench__a='class One:\n    x = 1\n    """Of nothing."""\n',
        bench__b="class One:\n    class Two:\n        pass\n",
    )
    assert shared_class_names(made) == {"One": ["bench.a", "bench.b"]}
    assert fragments(made) == ["bench.a:3"]

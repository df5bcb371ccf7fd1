"""Draws functions whose names are to say what they return: `python -m bench.names SEED`.

It prints path, signature and docstring of 40 functions of at least three statements, private ones
included. Who reads them writes down what each returns, opens the source and judges: [names.md].
"""

import ast
import sys
from collections.abc import Iterator
from random import Random

from bench.structure import ROOT, Checkout

TOPS = ("costmodel", "sharders", "planner")
NUMBER = 40


def functions(checkout: Checkout) -> Iterator[str]:
    """Yield what there is to read of every function, without its body."""
    for module in checkout.modules.values():
        if module.name.partition(".")[0] in TOPS:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    yield from _shown(module.name, node, f"{node.name}.")
            yield from _shown(module.name, module.tree, "")


def _shown(module: str, holder: ast.ClassDef | ast.Module, prefix: str) -> Iterator[str]:
    for node in holder.body:
        if isinstance(node, ast.FunctionDef):
            doc = ast.get_docstring(node)
            if len(node.body) - (doc is not None) >= 3:
                returned = ast.unparse(node.returns) if node.returns else "?"
                head = f"{module}: {prefix}{node.name}({ast.unparse(node.args)}) -> {returned}"
                yield f"{head}\n    {doc or 'no docstring'}"


if __name__ == "__main__":
    drawn = Random(int(sys.argv[1])).sample(list(functions(Checkout(ROOT))), NUMBER)  # noqa: S311
    print("\n\n".join(drawn))

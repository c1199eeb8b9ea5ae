"""Check that every test states its promise: one sentence, as its docstring."""

from __future__ import annotations

import ast
import sys
from pathlib import Path


def tests_without_promise(folder: Path) -> list[str]:
    """Name the tests in a folder that have no docstring of one line."""
    bare = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_test and node.name.startswith("test_"):
                promise = ast.get_docstring(node)
                if not promise or "\n" in promise:
                    bare.append(f"{path}:{node.lineno} {node.name}")
    return bare


if __name__ == "__main__":
    bare = tests_without_promise(Path(sys.argv[1]))
    print("\n".join(bare) or "all do")
    sys.exit(bool(bare))

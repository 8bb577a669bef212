"""The proofs of tests/gpu/proof, which are programs, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROOF = Path(__file__).parents[1] / "gpu" / "proof"


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return one of them, made anew."""
    monkeypatch.syspath_prepend(str(PROOF))
    spec = importlib.util.spec_from_file_location(name, PROOF / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module

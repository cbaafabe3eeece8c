"""The type stub of pynvml says what the installed pynvml has."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pynvml

STUB = Path(__file__).parents[3] / "typings/pynvml.pyi"
OPAQUE = {"_Device", "_EventSet", "_GpuInstance"}  # names of the stub's own for handles


def test_every_name_of_the_stub_exists():
    """A name that only the stub has would be a type-checked crash."""
    names = set()
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    assert sorted(name for name in names - OPAQUE if not hasattr(pynvml, name)) == []
    assert len(names) > 80


def test_functions_take_what_the_stub_says():
    """Parameters of the stub's functions are those of the real ones, as far as the wrappers show them."""
    stub = {
        node.name: [each.arg for each in node.args.args]
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    real = {name: list(inspect.signature(inspect.unwrap(getattr(pynvml, name))).parameters) for name in stub}
    assert {name: real[name][: len(stub[name])] for name in stub} == stub


def test_structures_have_the_fields_of_the_stub():
    """A misspelt field of a structure reads as an attribute error only when that structure is met."""
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith(("c_nvml", "nvmlPci")):
            fields = {name for name, *_ in getattr(pynvml, node.name)._fields_}
            stated = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)} - {"_fields_"}
            assert stated <= fields, node.name

"""The package says its types, and says them truly."""

import ast
import inspect
import pathlib
import re

import dorajit
import pytest
from dorajit import _native

FOLDER = pathlib.Path(dorajit.__file__).parent


def declared(path):
    """Name -> argument names of the functions of a stub file, None for other names."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [one.arg for one in node.args.posonlyargs + node.args.args]
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
    return found


def test_the_extension_is_what_its_stub_says():
    stub = declared(FOLDER / "_native.pyi")
    actual = {name for name in dir(_native) if not name.startswith("_")} | {"__version__"}
    assert set(stub) == actual
    for name, arguments in stub.items():
        if arguments is None:
            continue
        signature = getattr(_native, name)
        signature = signature.__text_signature__ or signature.__doc__.splitlines()[0]
        names = [one.split(":")[0].strip() for one in
                 signature[signature.index("(") + 1:signature.rindex(")")].split(",") if one]
        assert [one for one in names if one.isidentifier()] == arguments, signature


def test_every_public_function_has_types_and_words():
    assert (FOLDER / "py.typed").exists()
    stubs = declared(FOLDER / "__init__.pyi") if (FOLDER / "__init__.pyi").exists() else {}
    for name in dorajit.__all__:
        public = getattr(dorajit, name)
        assert inspect.getdoc(public), name
        if inspect.isfunction(public):
            signature = inspect.signature(public)
            missing = [p.name for p in signature.parameters.values()
                       if p.annotation is inspect.Parameter.empty]
            assert not missing and signature.return_annotation is not inspect.Signature.empty, name
    assert not stubs


def words(public):
    """What help() says of a function, and what that refers to."""
    text = inspect.getdoc(public)
    for other in re.findall(r"\bas (?:those of )?(fused_\w+)", text, re.IGNORECASE):
        text += words(getattr(dorajit, other))
    return text


OPERATIONS = ["fused_dora_compose", "fused_dora_compose_autograd", "fused_dora_forward_and_inner",
              "fused_norm_assembly", "compose_backward", "weight_norm"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_shapes_types_errors_and_its_source(name):
    public = getattr(dorajit, name)
    text = words(public)
    for part in ("Args:", "Returns:", "Raises:", "TypeError:", "ValueError:"):
        assert part in text, part
    assert re.search(r"\[[^\]]*(out|N, C)[^\]]*\]", text), "no shape"
    assert re.search(r"\btype\b|float32", text), "no element type"
    assert "arXiv:" in text + inspect.getmodule(public).__doc__, "no source"


def test_every_argument_is_explained():
    functions = [getattr(dorajit, name) for name in dorajit.__all__]
    functions += [dorajit.FusedDoRAComposeFunction.apply, dorajit.cache.export_to,
                  dorajit.cache.import_from]
    for function in filter(inspect.isroutine, functions):
        for name in inspect.signature(function).parameters:
            assert re.search(rf"\b{name}\b", words(function)), (function, name)


def test_every_module_says_what_it_is_for():
    for path in FOLDER.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path

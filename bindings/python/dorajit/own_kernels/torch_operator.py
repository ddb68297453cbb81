"""Own kernels as operators of torch.library."""

import torch

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
ELEMENT_TYPES = ("float32", "bfloat16", "float16", "float64", *_INTEGERS, "bool")
_NATIVE_HALVES = {"__half": "float16", "__nv_bfloat16": "bfloat16"}
# The scalars of a description, and their types in schemas.
PYTHON_TYPES = {**dict.fromkeys(_INTEGERS, "int"), "bool": "bool", "float32": "float", "float64": "float"}


def register(kernel, arguments, name, shapes, dtypes, backward, setup_context):
    """The operator; `arguments` are those of the kernel's description. Kernel.as_torch_op has the rest."""
    outputs = [one[0] for one in arguments if one[1] == "out"]
    inputs = [one for one in arguments if one[1] != "out"]
    missing = [one for one in outputs if one not in shapes]
    if missing:
        raise ValueError(f"as_torch_op: argument `shapes` has none for `{missing[0]}`; give a function of "
                         f"{', '.join(one[0] for one in inputs)}")
    names_of_types = {one[0]: one[2].partition("[")[0].strip() for one in arguments
                      if one[1] not in PYTHON_TYPES}
    tensors = [place for place, one in enumerate(inputs) if one[1] in ("in", "inout")]
    if not outputs and not any(one[1] == "inout" for one in inputs):
        raise ValueError(f"as_torch_op: {kernel.name} writes nothing")
    library, _, operator = name.partition("::")
    if not operator:
        raise ValueError(f"as_torch_op: argument `name` is {name!r}; give \"library::operator\"")

    def type_of(output, values):
        if output in dtypes:
            return dtypes[output](*values)
        name = _NATIVE_HALVES.get(names_of_types[output], names_of_types[output])
        if name in ELEMENT_TYPES:
            return getattr(torch, name)
        same = [place for place in tensors if names_of_types[inputs[place][0]] == name]
        return values[(same or tensors)[0]].dtype

    def allocate(*values):
        first = values[tensors[0]]
        return [first.new_empty(tuple(shapes[one](*values)), dtype=type_of(one, values)) for one in outputs]

    def result_of(made):
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def run(*values):
        made = allocate(*values)
        given, written = iter(values), iter(made)
        kernel(*(next(written) if one[1] == "out" else next(given) for one in arguments))
        return result_of(made)

    # The schema is written out, as the functions have no annotations to take it from.
    typed = ", ".join(
        f"Tensor{'(' + chr(ord('a') + place) + '!)' if one[1] == 'inout' else ''} {one[0]}"
        if place in tensors else f"{PYTHON_TYPES[one[1]]} {one[0]}" for place, one in enumerate(inputs))
    results = {0: "()", 1: "Tensor"}.get(len(outputs), f"({', '.join(['Tensor'] * len(outputs))})")
    torch.library.define(name, f"({typed}) -> {results}")
    torch.library.impl(name, "cuda")(run)
    torch.library.register_fake(name)(lambda *values: result_of(allocate(*values)))
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context)
    return getattr(getattr(torch.ops, library), operator)

"""What observes calls: a mode, and a backend of torch.compile that keeps the graphs of AOTAutograd."""

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatching(TorchDispatchMode):
    """Calls every function as it is; `seen` has their names."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class Graphs:
    """`backend` runs the graphs in eager mode, partitioned into passes as for Inductor."""

    def __init__(self):
        self.forward, self.backward, self.inference = [], [], []
        def keeping(graphs):
            def compiler(module, _):
                graphs.append(module.graph)
                return make_boxed_func(module.forward)
            return compiler
        self.backend = aot_autograd(
            fw_compiler=keeping(self.forward), bw_compiler=keeping(self.backward),
            inference_compiler=keeping(self.inference), partition_fn=min_cut_rematerialization_partition)

    def operators(self):
        """Pass -> names of dorajit's operators in it, for each pass that was compiled."""
        passes = {"forward": self.forward, "backward": self.backward, "inference": self.inference}
        return {name: [name_of(node) for graph in graphs for node in graph.nodes if name_of(node)]
                for name, graphs in passes.items() if graphs}

    def saved(self, operator):
        """The indices of the operator's outputs that the forward pass saves for the backward pass."""
        graph, = self.forward
        kept = graph.output_node().args[0][1:]  # the first output is the function's result
        return {node.args[1] for made in graph.nodes if name_of(made) == operator for node in made.users
                if node in kept}


def compiled(function, **options):
    """(the compiled function, its graphs)."""
    graphs = Graphs()
    return torch.compile(function, fullgraph=True, backend=graphs.backend, **options), graphs


def all_equal(found, expected):
    return all(one.dtype is other.dtype and torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def name_of(node):
    """The name of dorajit's operator that a node of a graph calls, or None."""
    target = node.target
    is_ours = isinstance(target, torch._ops.OpOverload) and target.namespace == "dorajit"
    return target._schema.name.removeprefix("dorajit::") if is_ours else None

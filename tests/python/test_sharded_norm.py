"""weight_norm of DTensors in several processes, compared with float64 on the whole weight."""

import dorajit
import pytest
import ranks as processes
import torch
from dorajit.norms import matrix_norms
from reference import assert_norm, exact_norm
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

ROWS, COLUMNS, ALL = Shard(0), Shard(1), Replicate()
SCALE = 0.375


def factors(device, out=37, columns=53, rank=5, dtype=torch.float32, factor_dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    def randn(*shape):
        return torch.randn(*shape, generator=generator)
    return (randn(out, columns).to(device, dtype), (randn(rank, columns) / 8).to(device, factor_dtype),
            randn(out, rank).to(device, factor_dtype))


def same_everywhere(tensor):
    every = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(every, tensor.contiguous())
    return all(torch.equal(one, tensor) for one in every)


# --- placements ----------------------------------------------------------------------------------

MESHES = {2: [((2,), [one]) for one in (ROWS, COLUMNS, ALL)],
          4: [((2, 2), [one, other]) for one in (ROWS, COLUMNS, ALL) for other in (ROWS, COLUMNS, ALL)]}
TYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16),
         (torch.bfloat16, torch.float32), (torch.float64, torch.float64)]
SHAPES = [(37, 53, 5), (1, 9, 2), (9, 1, 2), (3, 3, 1)]  # with some, ranks have no rows or columns


def _placements(rank, device):
    for shape, placements in MESHES[torch.distributed.get_world_size()]:
        mesh = init_device_mesh(device, shape)
        cases = [(one, TYPES[0]) for one in SHAPES[:4 if len(shape) == 1 else 2]]
        cases += [(SHAPES[0], one) for one in TYPES[1:] if len(shape) == 1]
        for size, (dtype, factor_dtype) in cases:
            whole = factors(device, *size, dtype, factor_dtype)
            weight = distribute_tensor(whole[0], mesh, placements)
            layouts = [whole[1:],  # plain factors, and three shardings of them
                       *([distribute_tensor(one, mesh, of) for one in whole[1:]]
                         for of in ([ALL] * len(shape), [ROWS] * len(shape), placements))]
            for a, b in layouts:
                found = dorajit.weight_norm(weight, a, b, SCALE)
                assert isinstance(found, DTensor) and not found.requires_grad
                assert found.placements == tuple(ROWS if one == ROWS else ALL for one in placements)
                assert found.shape == (size[0],)
                assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
                assert_norm(found.full_tensor(), exact_norm(*whole, SCALE))
                assert same_everywhere(found.full_tensor())
            assert_norm(dorajit.weight_norm(weight, *whole[1:], 0.0).full_tensor(), exact_norm(*whole, 0.0))


@processes.on(2, 4)
def test_weight_norm_of_every_placement_matches_float64(ranks, device, tmp_path):
    processes.run(_placements, ranks, device, tmp_path)


def _plain_weight_and_sharded_factors(rank, device):
    mesh = init_device_mesh(device, (2,))
    weight, a, b = factors(device)
    found = dorajit.weight_norm(weight, distribute_tensor(a, mesh, [ROWS]), distribute_tensor(b, mesh, [ROWS]), SCALE)
    assert type(found) is torch.Tensor
    assert torch.equal(found, dorajit.weight_norm(weight, a, b, SCALE))


def _convolutions_and_transposed_embeddings(rank, device):
    mesh = init_device_mesh(device, (2,))
    weight, a, b = factors(device, 12, 60, 3)
    conv, conv_a, conv_b = weight.view(12, 5, 4, 3), a.view(3, 5, 4, 3), b.view(12, 3, 1, 1)
    for dim in range(4):
        for factor_dim in range(2):
            found = dorajit.weight_norm(distribute_tensor(conv, mesh, [Shard(dim)]),
                                        distribute_tensor(conv_a, mesh, [Shard(factor_dim)]),
                                        distribute_tensor(conv_b, mesh, [Shard(factor_dim)]), SCALE)
            assert_norm(found.full_tensor(), exact_norm(weight, a, b, SCALE))
    for dim in range(2):
        turned = distribute_tensor(weight.T.contiguous(), mesh, [Shard(dim)]).T
        assert_norm(dorajit.weight_norm(turned, a, b, SCALE).full_tensor(), exact_norm(weight, a, b, SCALE))


def _a_small_budget(rank, device):
    mesh = init_device_mesh(device, (2,))
    whole = factors(device, 500, 700, 48, torch.bfloat16)
    for placement in (ROWS, COLUMNS):
        weight = distribute_tensor(whole[0], mesh, [placement])
        assert_norm(dorajit.weight_norm(weight, *whole[1:], SCALE, chunk_mb=1).full_tensor(), exact_norm(*whole, SCALE))


# --- communication -------------------------------------------------------------------------------

def _the_weight_does_not_travel(rank, device):
    from torch.distributed.tensor.debug import CommDebugMode
    mesh, sent = init_device_mesh(device, (2,)), []
    all_reduce = torch.distributed.all_reduce
    replaced = pytest.MonkeyPatch()
    replaced.setattr(torch.distributed, "all_reduce", lambda tensor, **group: (sent.append(tensor.numel()),
                                                                               all_reduce(tensor, **group)))
    for low_rank in (4, 24):  # the kernel; PyTorch's products in float32
        whole = factors(device, 640, 640, low_rank)
        for placement, expected in ((ROWS, []), (COLUMNS, [640])):
            weight = distribute_tensor(whole[0], mesh, [placement])
            sent.clear()
            with CommDebugMode() as calls:
                found = dorajit.weight_norm(weight, *whole[1:], SCALE)
            assert sent == expected
            assert not [name for name in calls.get_comm_counts() if "gather" in str(name)]
            assert_norm(found.full_tensor(), exact_norm(*whole, SCALE))
    replaced.undo()


def _ranks_need_not_go_the_same_way(rank, device):
    """The kernel may take the part of one rank only."""
    mesh = init_device_mesh(device, (2,))
    served, matrix_norms.serves = matrix_norms.serves, lambda *of: rank == 0 and served(*of)
    try:
        for whole in (factors(device), factors(device, 37, 1), factors(device, 40, 90, 5, torch.bfloat16)):
            found = dorajit.weight_norm(distribute_tensor(whole[0], mesh, [COLUMNS]), *whole[1:], SCALE)
            assert_norm(found.full_tensor(), exact_norm(*whole, SCALE))
            assert same_everywhere(found.full_tensor())
    finally:
        matrix_norms.serves = served


def _a_weight_that_is_written_to(rank, device):
    mesh = init_device_mesh(device, (2,))
    for placement in (ROWS, COLUMNS):
        whole = factors(device)
        weight = torch.nn.Parameter(distribute_tensor(whole[0], mesh, [placement]), requires_grad=False)
        dorajit.weight_norm(weight, *whole[1:], SCALE)
        with torch.no_grad():
            weight.mul_(2)
        assert_norm(dorajit.weight_norm(weight, *whole[1:], SCALE).full_tensor(),
                    exact_norm(whole[0] * 2, *whole[1:], SCALE))
        if rank == 0:
            weight.to_local().data.mul_(0)
        found = dorajit.weight_norm(weight, *whole[1:], SCALE)
        assert_norm(found.full_tensor(), exact_norm(weight.full_tensor(), *whole[1:], SCALE))


def _what_the_factors_nearly_cancel(rank, device):
    """In the kernel, where two large terms nearly cancel."""
    mesh = init_device_mesh(device, (2,))
    weight = torch.randn(64, 256, device=device)
    b, a = torch.linalg.qr(weight)
    b, a = b[:, :16].contiguous(), a[:16].contiguous()
    weight = b @ a
    found = dorajit.weight_norm(distribute_tensor(weight, mesh, [COLUMNS]), a, b, -1.0)
    assert (found.full_tensor().double() - exact_norm(weight, a, b, -1.0)).abs().max() < 2e-6 * weight.norm(dim=1).max()


def _what_is_not_finite_stays_so(rank, device):
    mesh = init_device_mesh(device, (2,))
    weight, a, b = factors(device)
    weight[1, 2], weight[20, 50] = float("nan"), float("inf")
    for placement in (ROWS, COLUMNS):
        found = dorajit.weight_norm(distribute_tensor(weight, mesh, [placement]), a, b, SCALE).full_tensor()
        assert found[1].isnan() and not found[20].isfinite() and found.isfinite().sum() == 35


# --- refused arguments ---------------------------------------------------------------------------

def _refusals(rank, device):
    mesh = init_device_mesh(device, (2,))
    weight, a, b = factors(device)
    rows = distribute_tensor(weight, mesh, [ROWS])
    partial = DTensor.from_local(weight, mesh, [Partial()])
    uneven = DTensor.from_local(weight[:10 + rank], mesh, [ROWS], run_check=False, shape=(21, 53), stride=(53, 1))
    for given, words in (((partial, a, b), r"`weight` is a DTensor with the placement Partial.*"
                                           "redistribute it"),
                         ((uneven, a, b[:21]), r"distribute_tensor or fully_shard"),
                         ((rows, a[:, :30], b), r"`lora_A`.*give it 53 columns"),
                         ((rows, a, b[:18]), r"`lora_B`.*give it \(37, 5\)"),
                         ((rows.to_local(), a, b), r"`lora_B`.*rows")):
        with pytest.raises(ValueError, match=words):
            dorajit.weight_norm(*given, SCALE)
    assert_norm(dorajit.weight_norm(rows, DTensor.from_local(a / 2, mesh, [Partial()]), b,
                                    SCALE).full_tensor(), exact_norm(weight, a, b, SCALE))
    alone = torch.distributed.device_mesh.DeviceMesh(device, [0])
    outside = DTensor.from_local(weight if rank == 0 else weight[:0], alone, [ALL], run_check=False,
                                 shape=weight.shape, stride=weight.stride())
    if rank == 1:
        with pytest.raises(ValueError, match="does not contain this rank"):
            dorajit.weight_norm(outside, a, b, SCALE)


def _each_case(rank, device):
    """In one start of the ranks, which takes longer than the cases; the error of a case names its function."""
    for case in (_plain_weight_and_sharded_factors, _convolutions_and_transposed_embeddings, _a_small_budget,
                 _the_weight_does_not_travel, _ranks_need_not_go_the_same_way, _a_weight_that_is_written_to,
                 _what_the_factors_nearly_cancel, _what_is_not_finite_stays_so, _refusals):
        case(rank, device)


@processes.on(2)
def test_weight_norm_of_dtensors(ranks, device, tmp_path):
    processes.run(_each_case, ranks, device, tmp_path)

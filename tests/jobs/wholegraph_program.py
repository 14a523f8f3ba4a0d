"""A program as WholeMemory's documentation shows it, but for the device: there is no GPU.

    wholegraph_program.py CHANNEL [ARGUMENT ...]

The channel sends the unique id: gloo RANK SIZE FILE, mpi, or file RANK SIZE FILE (no library at all).
"""

import os
import sys
import time

import torch
from wg_torch.wm_tensor import (WmTensorType, create_wm_tensor, create_wm_tensor_from_file, get_local_tensor,
                                get_partition_plan, get_wm_tensor_type)
from wholegraph.torch import wholegraph_pytorch as wg


def by_gloo(rank, size, path):
    import torch.distributed as dist

    rank, size = int(rank), int(size)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    box = [wg.get_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(box, 0)
    return rank, size, box[0]


def by_mpi():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    return comm.rank, comm.size, comm.bcast(wg.get_unique_id() if comm.rank == 0 else None)


def by_file(rank, size, path):
    rank, size = int(rank), int(size)
    if rank == 0:
        with open(path + ".new", "w") as file:
            file.write(" ".join(map(str, wg.get_unique_id())))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    return rank, size, [int(word) for word in open(path).read().split()]


wg.init_lib()
if sys.argv[1] == "run":  # under a launcher: Godwit's own ranks, and a file for the id
    import godwit

    rank, size, unique_id = by_file(os.environ["GODWIT_RANK"], os.environ["GODWIT_SIZE"], sys.argv[2])
else:
    rank, size, unique_id = {"gloo": by_gloo, "mpi": by_mpi, "file": by_file}[sys.argv[1]](*sys.argv[2:])
assert isinstance(unique_id, list) and all(isinstance(number, int) for number in unique_id)
wm_comm = wg.create_communicator(size, unique_id, rank)
assert (wg.get_rank(wm_comm), wg.get_size(wm_comm)) == (rank, size)

# HOST and DEVICE: ordinary tensors
for kind in (WmTensorType.DEVICE, WmTensorType.HOST):
    a = create_wm_tensor(wm_comm, [1001, 16], [], torch.float32, kind)
    assert type(a) is torch.Tensor and a.shape == (1001, 16) and a.sum() == 0 and get_wm_tensor_type(a) is kind
    start, count, rows_per_rank, total = get_partition_plan(a)
    assert (rows_per_rank, total) == (-(-1001 // size), 1001) and start == rank * rows_per_rank
    local = get_local_tensor(a)
    assert local.shape == (count, 16)
    wg.barrier(wm_comm)
    local[:] = torch.arange(start, start + count).unsqueeze(1)
    wg.barrier(wm_comm)
    assert (a == torch.arange(1001).unsqueeze(1)).all()
    view = wg.get_tensor_view(a, torch.device("cpu"))
    wg.barrier(wm_comm)
    if rank == size - 1:
        view[0, 0] = 77  # a modification by any process is seen by the others
    wg.barrier(wm_comm)
    assert a[0, 0] == 77
    try:
        wg.get_tensor_view(a, torch.device("cuda:0"))
        raise AssertionError("a view from a GPU")
    except NotImplementedError as refusal:
        assert "no such device here" in str(refusal)

# CHUNKED and NCCL: objects that look like tensors
for kind in (WmTensorType.CHUNKED, WmTensorType.NCCL):
    b = create_wm_tensor(wm_comm, [101, 4], [], torch.int64, kind)
    assert b.shape == (101, 4) and b.shape() == (101, 4) and b.dtype is torch.int64 and get_wm_tensor_type(b) is kind
    assert tuple(b.stride) == (4, 1) and b.stride() == (4, 1) and b.stride(0) == 4
    assert b.get_ptr() == get_local_tensor(b).data_ptr()
    start, count, _, _ = get_partition_plan(b)
    get_local_tensor(b)[:] = torch.arange(start, start + count).unsqueeze(1)
    wg.barrier(wm_comm)
    assert (b.gather(torch.tensor([100, 0, 50]))[:, 3] == torch.tensor([100, 0, 50])).all()
    wg.barrier(wm_comm)

padded = create_wm_tensor(wm_comm, [10, 3], [8, 1], torch.float32, WmTensorType.HOST)
assert padded.stride() == (8, 1)

if os.environ.get("WHOLEGRAPH_FILE"):
    prefix = os.environ["WHOLEGRAPH_FILE"]
    for kind in (WmTensorType.HOST, WmTensorType.CHUNKED):
        c = create_wm_tensor_from_file([], torch.int32, wm_comm, prefix, kind)
        start, count, _, total = get_partition_plan(c)
        assert total == 30 and (get_local_tensor(c) == torch.arange(start, start + count)).all()

# a part of the ranks, with an id of its own
if size >= 4 and sys.argv[1] in ("mpi", "run"):
    half = rank // 2
    if sys.argv[1] == "mpi":
        from mpi4py import MPI

        part = MPI.COMM_WORLD.Split(half)
        mine = part.bcast(wg.get_unique_id() if part.rank == 0 else None)
    else:
        _, _, mine = by_file(rank % 2, 2, f"{sys.argv[2]}.{half}")
    small = wg.create_communicator(2, mine, 1 - rank % 2)
    assert wg.get_size(small) == 2 and wg.get_rank(small) == 1 - rank % 2
    d = create_wm_tensor(small, [2], [], torch.float64, WmTensorType.HOST)
    d[wg.get_rank(small)] = rank
    wg.barrier(small)
    assert d.tolist() == [2.0 * half + 1, 2.0 * half], d
    del d

wg.barrier(wm_comm)
del a, b, local, view, padded
wg.finalize_lib()
print("passed", rank, size)

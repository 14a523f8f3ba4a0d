"""WholeMemory's names on top of godwit.memory, for programs written for it.

    from wholegraph.torch import wholegraph_pytorch as wg
    from wg_torch.wm_tensor import *

find this module after `godwit run --as wholegraph program.py`.  Without GPUs a rank's device is its own
memory: HOST and DEVICE tensors are ordinary PyTorch tensors on the CPU over one mapping, CHUNKED ones have a
mapping for each rank, and NCCL (also DISTRIBUTED) ones reach other nodes by messages.

Communicators are made with a unique id.  Under a launcher (`godwit run`, mpirun, torchrun) all processes
belong to one job, of which a communicator may be a part.  Processes that were started by hand meet through
the id alone, on one machine.
"""

from __future__ import annotations

import enum
import hashlib
import os
import secrets
import weakref
from typing import Any, Optional, Sequence, Union

import torch

from .. import _native, job, memory
from .._native import InvalidType, InvalidValue, Unsupported
from ..comm import COMM_WORLD, Communicator
from ..comm.group import communicator

__all__ = [
    "ChunkedTensor", "NCCLTensor", "WmTensorType", "barrier", "create_communicator", "create_wm_tensor",
    "create_wm_tensor_from_file", "destroy_communicator", "finalize_lib", "get_local_tensor", "get_partition_plan",
    "get_rank", "get_size", "get_tensor_view", "get_unique_id", "get_wm_communicator", "get_wm_tensor_type", "init_lib",
]

_ID_INTS = 32
_LIBRARY_TAGS = 1 << 40  # those of Godwit's own parts lie below

_communicators: list[Communicator] = []


class WmTensorType(enum.Enum):
    HOST = "host"
    DEVICE = "device"
    CHUNKED = "chunked"
    NCCL = "nccl"
    DISTRIBUTED = "nccl"


_KINDS = {WmTensorType.HOST: "continuous", WmTensorType.DEVICE: "continuous", WmTensorType.CHUNKED: "chunked",
          WmTensorType.NCCL: "distributed"}

# ---- the library, and who is in it -------------------------------------------------------------------


def init_lib(*unused: Any) -> None:
    """Nothing has to be prepared."""


def finalize_lib() -> None:
    """Give the communicators back.  Tensors that are still in use stay."""
    while _communicators:
        _communicators.pop().close()


def get_unique_id() -> list[int]:
    """A name for a new communicator, made at its rank 0 and sent to its other ranks by any channel."""
    rank, _ = _place()
    return [rank if rank is not None else -1] + [secrets.randbelow(2**31) for _ in range(_ID_INTS - 1)]


def create_communicator(size: int, unique_id: Sequence[int], rank: int) -> Communicator:
    """Collective for its `size` ranks: a communicator in which this process has the number `rank`."""
    numbers = _check_id(size, unique_id, rank)
    _join(size, numbers, rank)
    world = job.world()
    if size > world.size:
        raise InvalidValue(f"size: a communicator of {size} ranks in a job of {world.size}")
    ranks = [world.rank] if size == 1 else _meet(world, size, numbers, rank)
    made = communicator(_native.comm_of_ranks(world, ranks))
    _communicators.append(made)
    return made


def destroy_communicator(comm: Communicator) -> None:
    if comm in _communicators:
        _communicators.remove(comm)
    comm.close()


def get_rank(comm: Communicator) -> int:
    return comm.rank


def get_size(comm: Communicator) -> int:
    return comm.size


def barrier(comm: Communicator) -> None:
    """Return when every rank of the communicator has called it."""
    comm.Barrier()


def _check_id(size: int, unique_id: Sequence[int], rank: int) -> list[int]:
    numbers = [int(number) for number in unique_id]
    if len(numbers) != _ID_INTS:
        raise InvalidValue(f"unique_id: it has {len(numbers)} numbers, not {_ID_INTS}; pass on what get_unique_id() gave")
    if size < 1 or not 0 <= rank < size:
        raise InvalidValue(f"rank: {rank} of {size}; ranks go from 0 to size - 1")
    return numbers


def _place() -> tuple[Optional[int], int]:
    """This process's rank in its job as far as it is known without joining, and how many there are."""
    if job._world is not None and not job._world.closed:
        return job._world.rank, job._world.size
    plan = _native.plan(None, None, None, None, None)
    return (None if plan["rank"] < 0 else plan["rank"]), plan["size"]


def _join(size: int, numbers: list[int], rank: int) -> None:
    """Join the launcher's job.  Who has no launcher makes one for this communicator."""
    if job._world is not None and not job._world.closed:
        return
    if _place()[1] > 1 or size == 1:
        job.init()
    else:
        job.init(rank=rank, size=size, job=f"wholegraph-{_digest(numbers)}")


def _digest(numbers: list[int]) -> str:
    return hashlib.sha256(repr(numbers).encode()).hexdigest()[:32]


def _meet(world: _native.World, size: int, numbers: list[int], rank: int) -> list[int]:
    """The ranks in the world of all who have this id.  They find each other at the one who made it."""
    host = numbers[0]
    if host < 0 and size == world.size:
        host = 0  # a job that was made for this communicator; its rank 0 is the communicator's
    if not 0 <= host < world.size:
        raise Unsupported("unique_id: it was made before its process belonged to this job; call get_unique_id() again")
    native = COMM_WORLD._open()
    tag = _LIBRARY_TAGS + int(_digest(numbers)[:10], 16)
    if world.rank != host:
        request, _ = native.isend(torch.tensor([rank, world.rank]), host, tag, 0)
        request.wait()
        ranks = torch.empty(size, dtype=torch.int64)
        native.irecv(ranks, host, tag + 1).wait()
    else:
        ranks = torch.full((size,), -1)
        ranks[rank] = world.rank
        card = torch.empty(2, dtype=torch.int64)
        for _ in range(size - 1):
            native.irecv(card, -1, tag).wait()
            ranks[card[0]] = card[1]
        for other in ranks.tolist():
            if other not in (-1, world.rank):
                native.isend(ranks, other, tag + 1, 0)[0].wait()
    found = ranks.tolist()
    if -1 in found:
        raise InvalidValue(f"rank: nobody is rank {found.index(-1)} of {size}, because two processes gave the same number")
    return found


# ---- tensors ---------------------------------------------------------------------------------------------


class _Shape(tuple):
    """A tuple, and a call as size() is."""

    def __call__(self, dim: Optional[int] = None) -> Any:
        return self if dim is None else self[dim]

    def numel(self) -> int:
        return torch.Size(self).numel()


class _WmTensor(memory.Memory):
    """shape and stride may be used as attributes and as calls; get_ptr() is the address of this rank's part."""

    def __init__(self, native: _native.Memory, comm: Communicator):
        super().__init__(native, comm)
        self.shape = _Shape(self.shape)  # type: ignore[assignment]


class ChunkedTensor(_WmTensor):
    """A tensor with a mapping for each rank."""


class NCCLTensor(_WmTensor):
    """A tensor whose rows on other nodes are reached by messages."""


class _Record:
    """What is known of a HOST or DEVICE tensor, which itself is an ordinary one."""

    def __init__(self, comm: Communicator, kind: WmTensorType, rows: int, start: int, count: int):
        self.comm, self.kind, self.rows, self.start, self.count = comm, kind, rows, start, count


_records: dict[int, _Record] = {}  # by the address of the mapping, as long as it is in use

WmTensor = Union[torch.Tensor, ChunkedTensor, NCCLTensor]


def create_wm_tensor(wm_comm: Communicator, sizes: Sequence[int], strides: Sequence[int] = (),
                     tensor_dtype: torch.dtype = torch.float32,
                     wm_tensor_type: WmTensorType = WmTensorType.CHUNKED) -> WmTensor:
    """Collective: a tensor that all ranks of the communicator see, each having its part of the first dimension."""
    if not isinstance(wm_comm, Communicator):
        raise InvalidType(f"wm_comm: {wm_comm!r} is no communicator; make one with create_communicator()")
    if wm_tensor_type not in _KINDS:
        raise InvalidType(f"wm_tensor_type: {wm_tensor_type!r} is none of WmTensorType")
    whole = memory.empty(list(sizes), tensor_dtype, _KINDS[wm_tensor_type], wm_comm, strides=list(strides) or None)
    if wm_tensor_type is WmTensorType.CHUNKED:
        return ChunkedTensor(whole._native, wm_comm)
    if wm_tensor_type is WmTensorType.NCCL:
        return NCCLTensor(whole._native, wm_comm)
    return _ordinary(whole, wm_tensor_type)


def _ordinary(whole: memory.Memory, kind: WmTensorType) -> torch.Tensor:
    """The tensor alone keeps the mapping, and the record lasts as long as that."""
    if 0 in whole.shape:
        return whole.torch()
    chunk = whole._native.chunk(-1)
    address = chunk.address
    window = memoryview(chunk)
    _records[address] = _Record(whole.comm, kind, whole.shape[0], whole.local_start, whole.part(whole.comm.rank)[1])
    weakref.finalize(window, _records.pop, address, None)
    tensor = torch.frombuffer(window, dtype=whole.dtype).as_strided(whole.shape, whole.stride)
    whole.close()  # when the tensor goes
    return tensor


def _record_of(tensor: torch.Tensor) -> _Record:
    record = _records.get(tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage")
                          else tensor.storage().data_ptr())
    if record is None or not tensor.dim() or tensor.shape[0] != record.rows:
        raise InvalidType("tensor: it was not made by create_wm_tensor(), or is only a part of what was")
    return record


def create_wm_tensor_from_file(shape: Sequence[int], dtype: torch.dtype, wm_comm: Communicator, filename: str,
                               wm_tensor_type: WmTensorType = WmTensorType.CHUNKED, part_count: int = 0) -> WmTensor:
    """Collective: the same with the entries of a raw file, or of the parts of one: those named
    filename_part_0_of_4 and so on.  Each rank reads its own rows.  With an empty shape there is one dimension."""
    paths = _parts(filename, part_count)
    n_bytes = sum(_native.memory_file(path, 1)[1] for path in paths)
    item = torch.empty((), dtype=dtype).element_size()
    sizes = list(shape) or [n_bytes // item]
    expected = torch.Size(sizes).numel() * item
    if n_bytes != expected:
        raise InvalidValue(f"'{filename}' has {n_bytes} bytes, but shape {sizes} of {dtype} needs {expected}")
    kind = _KINDS[wm_tensor_type]
    whole = memory.empty(sizes, dtype, kind, wm_comm).load(paths, "raw")
    if wm_tensor_type is WmTensorType.CHUNKED:
        return ChunkedTensor(whole._native, wm_comm)
    return NCCLTensor(whole._native, wm_comm) if wm_tensor_type is WmTensorType.NCCL else _ordinary(whole, wm_tensor_type)


def _parts(filename: str, part_count: int) -> list[str]:
    if part_count == 0 and os.path.exists(filename):
        return [filename]
    if part_count == 0:
        directory, name = os.path.split(filename)
        for found in sorted(os.listdir(directory or ".")) if os.path.isdir(directory or ".") else []:
            head, of, count = found.rpartition("_of_")
            if of and head == f"{name}_part_0" and count.isdigit():
                part_count = int(count)
    if part_count == 0:
        return [filename]  # the library says that it is missing
    return [f"{filename}_part_{part}_of_{part_count}" for part in range(part_count)]


def get_wm_tensor_type(tensor: WmTensor) -> WmTensorType:
    if isinstance(tensor, ChunkedTensor):
        return WmTensorType.CHUNKED
    return WmTensorType.NCCL if isinstance(tensor, NCCLTensor) else _record_of(tensor).kind


def get_wm_communicator(tensor: WmTensor) -> Communicator:
    return tensor.comm if isinstance(tensor, memory.Memory) else _record_of(tensor).comm


def get_partition_plan(tensor: Union[WmTensor, Communicator], total: Optional[int] = None) -> tuple[int, int, int, int]:
    """This rank's first row, how many it has, how many each has at most, and how many there are."""
    comm = tensor if isinstance(tensor, Communicator) else get_wm_communicator(tensor)
    if total is None:
        if isinstance(tensor, Communicator):
            raise InvalidValue("total: with a communicator say how many rows there are")
        total = tensor.shape[0]
    each = -(-total // comm.size)
    start = min(comm.rank * each, total)
    return start, min(each, total - start), each, total


def get_local_tensor(tensor: WmTensor) -> torch.Tensor:
    """This rank's rows, as a tensor of the same bytes."""
    if isinstance(tensor, memory.Memory):
        return tensor.local
    record = _record_of(tensor)
    return tensor[record.start:record.start + record.count]


def get_tensor_view(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same bytes, seen from a device.  Here that is the CPU."""
    device = torch.device(device)
    if device.type != "cpu":
        raise Unsupported(f"device: there is no such device here as {device}; a rank's device is its own memory, "
                          "torch.device('cpu')")
    if not isinstance(tensor, torch.Tensor):
        raise InvalidType(f"tensor: {type(tensor).__name__} has no view; HOST and DEVICE tensors have")
    return tensor.view(tensor.shape)

"""The numbers that the C library and this package share: operations, collectives, types, flags."""

import torch

# The operations, in MPI's order.
MPI_MAX = 0
MPI_MIN = 1
MPI_SUM = 2
MPI_PROD = 3
MPI_LAND = 4
MPI_BAND = 5
MPI_LOR = 6
MPI_BOR = 7
MPI_LXOR = 8
MPI_BXOR = 9
MPI_MINLOC = 10
MPI_MAXLOC = 11

OP_NAMES = ("MAX", "MIN", "SUM", "PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR", "MINLOC", "MAXLOC")

ANY_SOURCE = -1
ANY_TAG = -1

# enum gw_collective
ALLREDUCE, REDUCE, BCAST, GATHER, ALLGATHER, SCATTER, ALLTOALL, REDUCE_SCATTER, SCAN, BARRIER = range(10)

# enum gw_dtype
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)

# What each rank tells the others along with a call; joined by "or".
NEEDS = 1  # my input requires a gradient
ABSTAINS = 2  # I record nothing, so I shall not take part in the backward pass

# Tags of programs end here; a gradient goes back with this one plus its message's number.
TAG_LIMIT = 1 << 31
GRADIENT_TAG = 1 << 32

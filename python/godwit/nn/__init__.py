"""Modules for PyTorch whose parameters live in Godwit.

Embedding keeps its rows in Parameters, each with the state of an optimizer of godwit.optim.
WholeEmbedding keeps them in whole memory; SGD, AdaGrad, RMSProp and LazyAdam step the rows
that were touched.
"""

from .embedding import Embedding
from .whole import SGD, AdaGrad, LazyAdam, RMSProp, WholeEmbedding

__all__ = ["SGD", "AdaGrad", "Embedding", "LazyAdam", "RMSProp", "WholeEmbedding"]

"""Modules for PyTorch whose parameters live in Godwit.

WholeEmbedding keeps its rows in whole memory; SGD, AdaGrad, RMSProp and LazyAdam step the rows
that were touched.
"""

from .whole import SGD, AdaGrad, LazyAdam, RMSProp, WholeEmbedding

__all__ = ["SGD", "AdaGrad", "LazyAdam", "RMSProp", "WholeEmbedding"]

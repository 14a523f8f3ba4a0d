"""Modules whose rows live in Godwit's memory: Embedding, in Parameters."""

from .embedding import Embedding as Embedding

__all__ = ["Embedding"]

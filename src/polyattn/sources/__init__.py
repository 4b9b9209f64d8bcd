"""Sources: data in chunks that are read one by one, from arrays, files, tables or a cluster."""

from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source

__all__ = ["Chunk", "ChunkData", "ChunkIdentity", "Source"]

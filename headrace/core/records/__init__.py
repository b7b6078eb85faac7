"""Record batches: a 64-byte header and an Arrow body (docs/protocol.md)."""

"""Sessions: one stream that carries produces and fetches of many partitions (docs/protocol.md)."""

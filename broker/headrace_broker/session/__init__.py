"""Sessions, the broker's side: many partitions in one request (docs/protocol.md)."""

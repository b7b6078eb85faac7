"""Sessions, the broker's side: many partitions in one request of a client (docs/protocol.md)."""

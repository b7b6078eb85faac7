"""The broker's side of sessions: many partitions in one request of a client (docs/protocol.md)."""

"""The decisions of the log, without I/O: indexes, recovery, group commit."""

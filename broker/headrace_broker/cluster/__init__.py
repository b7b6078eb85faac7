"""The broker's side of the API server: its Lease, the PartitionSets that it writes, and the partitions that it has to
hold."""

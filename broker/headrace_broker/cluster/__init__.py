"""The broker's side of the API server: its Lease, the PartitionSets that it writes, and what it is told to hold."""

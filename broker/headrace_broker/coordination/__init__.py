"""The broker's side of the API server: its Lease, its seats, and what it is told to hold."""

"""HTTP routes: parse strictly at the edge, ask the partition or the cluster view, answer."""

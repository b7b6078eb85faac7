"""HTTP of a broker: routes that parse strictly at the edge, ask the partition or the cluster view, and answer."""

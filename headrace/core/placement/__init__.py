"""Where replicas and leaders stand."""

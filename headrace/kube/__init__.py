"""The one Kubernetes client of Headrace: typed list, watch, compare-and-set, Lease."""

"""The one Kubernetes client of the house: typed list, watch, compare-and-set, Lease."""

"""The coordinators on a broker: of consumer groups and of writers that stage commits, each by a partition of an
internal topic."""

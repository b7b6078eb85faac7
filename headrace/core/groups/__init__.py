"""Consumer groups: the members that read each partition, and how far. Pure; ADR 0014 has the protocol and the record
formats."""

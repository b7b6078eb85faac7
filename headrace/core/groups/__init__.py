"""Consumer groups: who reads which partition, and how far. Pure; ADR 0041 has the protocol and the record formats."""

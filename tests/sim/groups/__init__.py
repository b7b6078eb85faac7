"""Consumer groups in the simulator: members, coordinators on the simulated brokers, and all between them."""

"""The deterministic simulator: brokers, operator and API store around the real core, one event at a time."""

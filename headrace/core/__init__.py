"""The pure heart of Headrace: records, log, placement, resources, limits. No I/O, no clock, no chance."""

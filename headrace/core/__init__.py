"""The pure heart of Headrace: records, log, replication, groups, control, frames. No I/O, no clock, no chance."""

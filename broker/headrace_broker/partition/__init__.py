"""The partitions that are open on a broker: one shell for each, what leads, follows and cleans it, and all of them."""

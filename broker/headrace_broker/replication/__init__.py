"""The replication between brokers: the streams that carry logs, votes and signs of life."""

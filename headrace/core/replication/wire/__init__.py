"""The replication stream, without I/O: its frames, and what both sides of it keep (docs/protocol.md has every byte).

    follower: Hello, Follow, AskEpochEnd, Fetch, Report, Unfollow, Alive
    leader:   EpochEnded, Batches, Move, Failed, Heartbeat

One stream carries all partitions that one broker follows of another, each on a channel of its own.
"""

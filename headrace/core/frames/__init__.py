"""The two framed protocols of a broker: sessions of clients, and the replication streams between brokers.

    session      client:   OpenProduce, Produce, OpenFetch, Credit, Close
                 broker:   Opened, Produced, Batches, Failed, Closed, Heartbeat
    replication  follower: Hello, Follow, AskEpochEnd, Fetch, Report, Unfollow, Alive
                 leader:   EpochEnded, LeaderBatches, Move, LeaderFailed, LeaderHeartbeat

A session is a client's long stream to a broker: it carries produces and fetches of many partitions. A replication
stream carries all partitions that one broker follows of another. In both each partition has a channel of its own.
`frame` and `channels` serve both; `session_messages` and `replication_messages` have the table of messages of each.
docs/protocol.md has every byte.
"""

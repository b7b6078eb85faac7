"""TLS of a broker: where its certificate comes from, whether it can be used, and how a new one replaces it."""

"""The SDK: Producer and Consumer."""

"""Partitions on one disk: their logs, and the directory that holds them and belongs to one broker process."""

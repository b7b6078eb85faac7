"""Figures for produce, fetch and latency, each beside what this very machine can do in the same run.

`python -m bench` runs a broker under `headrace dev` in a temporary folder, and rounds of measurements against it. Each
round also copies bytes over loopback and appends them to a file, so that a figure comes with its ratio: absolute
numbers say more about a machine than about Headrace. The median of the rounds is reported.
"""

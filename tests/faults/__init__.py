"""Faults on real processes: brokers, operators and an API server that are killed, stopped, cut off and lied to.

`make faults` plays the scenarios of a list one by one (`tests/faults/scenarios`); every client writes
down what it asked and what it was told (`journal`), and a pure checker judges that in the end (`history`).
"""

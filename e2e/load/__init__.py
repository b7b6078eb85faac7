"""Clients under load in a pod of the cluster, who judge afterwards what they were promised and shown.

`harness` starts and ends the pod, `in_pod` is what runs there; the clients and the judge are those of `tests.faults`.
"""

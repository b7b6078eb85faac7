"""The supervisor behind `headrace dev`: one process that starts, watches and stops all the others.

It starts the embedded Kubernetes API, the operator and N brokers as real processes, starts again what dies, and is an
ordinary client of the API for the StatefulSet `headrace` and its Pods. Nothing here decides about topics: that is the
operator's and the brokers' work, which is why `headrace dev` behaves as a cluster does.
"""

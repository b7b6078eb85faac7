"""The embedded Kubernetes API of `headrace dev`: what kubectl, kopf and `kubernetes.aio` need, over one SQLite file.

    __main__ -> server -> routes, watching        the aiohttp shell
                -> operations                     create, get, list, replace, patch, delete
                   -> strategy, structural, validation, rules, object_meta, patches, selectors
                   -> store, history              state, resourceVersions, what watchers may still ask for
                -> collector                      the controllers that a bare API server leaves to others
                -> discovery, openapi, tables     how objects and kinds are shown

Everything runs on one event loop and no operation awaits between its check and its write, so each is atomic.
Where this API and a real kube-apiserver differ, this one is wrong: `tests/contract` runs against both.
"""

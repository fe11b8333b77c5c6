"""A network of Linux network namespaces, made and run by a small process of its own.

The modules of this package need nothing but the standard library, and import each other relatively: the process that
makes a user namespace must have a single thread, so that it may not even import NumPy. It is a fresh interpreter, which
finds this folder by its path and never imports evenhand (see `evenhand.envs.datacenter.network`).
"""

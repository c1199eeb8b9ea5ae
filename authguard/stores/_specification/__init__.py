"""
What each algorithm must do, written the slow and obvious way; see :mod:`authguard.stores.memory`.

Each class is one limit as it stands at one moment, and answers as its Lua must.
"""

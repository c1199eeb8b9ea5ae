"""
What the command line and the console show, computed without either.

Nothing here prints or ends a process: functions take values and give back frozen reports.
"""

"""How long a test waits for an event of another process or thread.

The event comes within seconds. Only a hang takes ten minutes, also beside other busy processes.
"""

HANG_S = 600.0

"""`holdfast run` at work: supervisor.py START HERE with several processes, process.py with one."""

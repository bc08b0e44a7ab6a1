"""What `holdfast run` does: supervisor.py START HERE with several processes, process.py with one."""

"""Run jobs in forks of warm processes, which have loaded the code that the jobs need."""

"""Command line, configuration files, plan, status and report. Its commands run the steps of `stages`."""

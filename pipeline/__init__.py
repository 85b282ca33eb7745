"""The roof: command line, configuration, plan, status and report. Wires the stages into commands."""

"""The methods that find plans, from the simplest to the exact one."""

"""Names of other toolkits, for wrappers and sources that were written for them. Nothing else of kjit imports this."""

"""Groups of commands of the command line, one file per room."""

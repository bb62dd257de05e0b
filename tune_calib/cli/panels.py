"""Groups of options and of commands, as help has them."""

TABLES = "Tables"
FORMATS = "Format"
EVERY = "Every command"

RUN = "Run"
READ = "Read results"
LOOK_UP = "Look up"
OWN = "Your own networks and methods"

# clean-room: for clients that may do much. They read nothing that strangers can write into, so that nobody talks to them but
# their owner.

profile "clean-room" {
  description   = "As strict, but only tools whose output is clean"
  base          = "strict"
  clean_sources = true
}

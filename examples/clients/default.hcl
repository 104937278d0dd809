# Whoever has the endpoint's own token: without this file everything, with
# it what it says.
servers = ["everything", "memory"]
profile = "strict"

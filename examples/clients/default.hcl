# This file restricts every program that has the endpoint's own token, and
# pfar connect. Without this file such a program may use all servers.
servers = ["everything", "memory"]
profile = "strict"

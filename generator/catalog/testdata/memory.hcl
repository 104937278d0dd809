# From pfar's entry of Memory: pfar services memory
description = "Memory: A graph of notes on this machine"

server { package = "npm:@modelcontextprotocol/server-memory@2026.8.31" }

sandbox { state = true }

env = { MEMORY_FILE_PATH = "/home/mcp/memory.json" }

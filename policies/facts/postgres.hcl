# PostgreSQL. Tables hold what others typed. The server means to read only, and a query that ends its transaction writes all the same:
# give it a user of the database who may only read, and say effect = "none" in the declaration.

service "postgres" {
  packages = ["@modelcontextprotocol/server-postgres"]
  output   = "sensitive raw"
  audience = "sensitive"

  irreversible = ["query"]
}

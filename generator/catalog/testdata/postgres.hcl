# From pfar's entry of PostgreSQL: pfar services postgres
description     = "PostgreSQL: Tables and queries of one database"
allowed_domains = ["db.example.com:5432"]

server {
  package = "npm:@modelcontextprotocol/server-postgres@0.6.2"
  args    = ["postgresql://reader@db.example.com/$${app}"]
}

auth = { PGPASSWORD = "vault:postgres_password" }

# PostgreSQL. Tables hold what others typed. The server means to read only, and a query that ends its transaction writes all the same:
# give it a user of the database who may only read, and say effect = "none" in the declaration.

service "postgres" {
  packages = ["@modelcontextprotocol/server-postgres"]
  output   = "sensitive raw"
  audience = "sensitive"

  irreversible = ["query"]

  # Its one tool may write, so no test call shows that the password is right.
  # The server takes its address from the arguments, where everybody sees it, so the password is in a variable of libpq's.
  setup {
    title     = "PostgreSQL"
    summary   = "Tables and queries of one database"
    label     = "sensitive"
    package   = "npm:@modelcontextprotocol/server-postgres@0.6.2"
    integrity = "sha512-ukbVmVxLAsdZ5pTVWbhf9fc7lqkSf7XqizNH8XAotI21GnRPtkqO+WLWpeBFU+/2Fyv63uXS7/9NnR8Y8wOP1Q=="
    args      = ["{database}"]
    domains   = ["{host}"]

    secret "PGPASSWORD" {
      key     = "postgres_password"
      deliver = "env"
      where   = "Have the database's owner make a role that only reads, and take its password."
    }

    parameter "host" {
      question = "Which host and port?"
      example  = "db.example.com:5432"
    }

    parameter "database" {
      question = "Which address, without a password?"
      example  = "postgresql://reader@db.example.com/app"
    }
  }
}

// Package trust is what tests declare of how far their servers are to be trusted.
package trust

// Honest says of a server that nothing it does needs anybody's approval, and that none of it is a stranger's.
const Honest = `
trust {
  public_source    = false
  secret_data      = true
  public_sink      = false
  dangerous_writes = false
}
`

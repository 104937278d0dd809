//go:build !race

package confine

// Raced says that this program has the race detector.
const Raced = false

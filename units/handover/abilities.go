package handover

import (
	"fmt"
	"slices"
)

// Abilities is what pfar, as a client, tells a server that it is capable of, in JSON: all that the server may ask of
// clients (Server.Capabilities).
func Abilities(allowed []string) []byte {
	b := []byte{'{'}
	for _, c := range []string{"elicitation", "roots", "sampling"} {
		if !slices.Contains(allowed, c) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		value := `{}`
		if c == "elicitation" {
			value = `{"form":{},"url":{}}`
		}
		b = fmt.Appendf(b, "%q:%s", c, value)
	}
	return append(b, '}')
}

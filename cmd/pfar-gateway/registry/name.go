package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Separator stands between server and tool in the aggregate's names. No server's name has an underscore in it, so the
// first one found ends the server's name.
const Separator = "__"

// maxServed is the longest name that is shown on the aggregate: some models' interfaces take no longer one.
const maxServed = 64

// servedName is what the aggregate calls a server's tool or prompt. One that would be too long ends in a digest of the
// whole instead.
func servedName(server, own string) string {
	name := server + Separator + own
	if len(name) <= maxServed {
		return name
	}
	sum := sha256.Sum256([]byte(own))
	return name[:maxServed-9] + "_" + hex.EncodeToString(sum[:4])
}

// skeleton is what a name looks like at a glance, and to those who take "-" and "_" or capitals for the same.
func skeleton(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// names are those of one list that are taken.
type names map[string]string // name by skeleton

// take enters an item's name, or says which earlier one it cannot be told apart from.
func (n names) take(k Kind, server, own string) error {
	if k > Prompts {
		if _, ok := n[own]; ok {
			return fmt.Errorf("an earlier one has the same URI")
		}
		n[own] = own
		return nil
	}
	both := [...]string{skeleton(own), skeleton(servedName(server, own))}
	for _, s := range both {
		switch other, ok := n[s]; {
		case ok && other == own:
			return fmt.Errorf("an earlier one has the same name")
		case ok:
			return fmt.Errorf("the name looks like that of %q, or is served as it", other)
		}
	}
	for _, s := range both {
		n[s] = own
	}
	return nil
}

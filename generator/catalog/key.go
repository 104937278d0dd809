package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
)

// maxKey is how long a name in the vault may be.
const maxKey = 64

// KeyFor derives the name of a secret in the vault from its server and variable.
func KeyFor(server, variable string) string {
	own, of := strings.ReplaceAll(server, "-", "_"), strings.ToLower(variable)
	key := own + "_" + of
	if strings.HasPrefix(of, own+"_") {
		key = of
	}
	if len(key) > maxKey || !declaration.IsVaultKey(key) || block.SecretLooking(key) {
		sum := sha256.Sum256([]byte(variable))
		key = own + "_secret_" + hex.EncodeToString(sum[:4])
	}
	return key
}

// Brokered returns the secret with this variable, if the bridge puts it into requests to fixed hosts. It reports false
// if no service has one, or if services disagree about the hosts or places.
func (s Set) Brokered(variable string) (found Secret, ok bool) {
	for _, service := range s.All() {
		for _, k := range service.Secrets {
			switch {
			case k.Env != variable:
			case k.Deliver != broker.OnWire || slices.ContainsFunc(k.Hosts, isPattern):
				return Secret{}, false
			case ok && !(slices.Equal(k.Hosts, found.Hosts) && slices.Equal(k.In, found.In)):
				return Secret{}, false
			default:
				found, ok = k, true
			}
		}
	}
	return found, ok
}

// isPattern reports whether a host has a wildcard or a parameter in it.
func isPattern(host string) bool { return strings.ContainsAny(host, "{*") }

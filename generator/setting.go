package generator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/pfar/pfar/generator/declaration"
)

// setting is the digest of the declared variables, with where pfar takes those from that are variables of its own; ""
// if there are none.
func setting(s declaration.Server) string {
	vars := slices.Clone(s.Env)
	for _, c := range s.Credentials {
		if c.From != "" {
			vars = append(vars, declaration.Variable{Name: c.Env, Value: "$" + c.From})
		}
	}
	if len(vars) == 0 {
		return ""
	}
	b, _ := json.Marshal(vars) // strings
	return digest(string(b))
}

// digest is the SHA-256 of a text, in hexadecimal.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

package provenance

import (
	"math/rand/v2"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestPrints: a table that has grown finds each fingerprint with how secret it is, and no other one.
func TestPrints(t *testing.T) {
	const many = 5000
	random := rand.New(rand.NewPCG(5, 6))
	next := func() uint64 { return random.Uint64()&^secrecy | 1<<secrecy }
	var p prints
	secret := map[uint64]gate.Confidentiality{}
	for len(secret) < many {
		f, is := next(), []gate.Confidentiality{gate.Internal, gate.Secret}[len(secret)%2]
		if !p.add(f, is, many) {
			t.Fatalf("the table takes no more than %d", len(secret))
		}
		secret[f] = max(secret[f], is)
	}
	for f, is := range secret {
		if !p.any([]uint64{f}, gate.Public) {
			t.Fatalf("%x is not found", f)
		}
		if found := p.any([]uint64{f}, gate.Internal); found != (is == gate.Secret) {
			t.Fatalf("%x is more secret than internal: %v", f, found)
		}
	}
	for range many {
		if f := next(); secret[f] == 0 && p.any([]uint64{f}, gate.Public) {
			t.Fatalf("%x is found", f)
		}
	}
}

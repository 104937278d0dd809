package generator

import (
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

// TestNewToken: a server at a socket that refuses its token, or wants one, gets it by the vault or the declaration.
func TestNewToken(t *testing.T) {
	for _, c := range []struct {
		credentials []declaration.Credential
		want        string
	}{
		{[]declaration.Credential{{Env: "TOKEN", Key: "fs-token"}}, "pfar vault set fs-token"},
		{[]declaration.Credential{{Env: "TOKEN", From: "FS_TOKEN"}}, "pfar edit fs"},
		{nil, "pfar edit fs"},
	} {
		if got := newToken(declaration.Server{Name: "fs", Credentials: c.credentials}).Command; got != c.want {
			t.Errorf("%+v: %q, want %q", c.credentials, got, c.want)
		}
	}
}

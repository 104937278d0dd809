package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
)

// TestBecomeNobodyElse: what is not the id of a server is refused before anything is given up or taken.
func TestBecomeNobodyElse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for _, text := range []string{"", "0", "-1", "1000", "60577", "x", "60706\n", " 60706", "0x70660000", "99999999999999999999"} {
		if err := os.WriteFile(filepath.Join(dir, units.CredentialUser), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := become(nil); err == nil || !strings.Contains(err.Error(), "reading credential") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, units.CredentialUser)); err != nil {
		t.Fatal(err)
	}
	if err := become(nil); err == nil || !strings.Contains(err.Error(), "reading credential") {
		t.Errorf("without the credential: %v", err)
	}
}

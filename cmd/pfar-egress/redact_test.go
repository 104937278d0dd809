package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	sdjournal "github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/monitor"
)

// TestHostsWithoutSecrets: a server that asks for a host whose name is a secret is refused without that being told of,
// to the log, the runner or those who watch.
func TestHostsWithoutSecrets(t *testing.T) {
	const value = "0f3c9a7be2d84165b0a1"
	stored, err := redact.New(map[string][]byte{"k": []byte(value)}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	none, err := newHidden()
	if err != nil || none.clean(value) != value {
		t.Fatalf("without a credential: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, units.CredentialRedaction), stored, 0o600); err != nil {
		t.Fatal(err)
	}
	given, err := newHidden()
	if err != nil {
		t.Fatal(err)
	}
	f, err := units.Sealed("test", stored)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	none.take([]*os.File{f}, slog.New(slog.NewTextHandler(&log, nil)))
	none.take(nil, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "no file") {
		t.Errorf("a message without a file: %s", &log)
	}
	for name, h := range map[string]*hidden{"given": given, "told": none} {
		var log bytes.Buffer
		var status string
		table := monitor.NewTable("")
		j := newJournal(slog.New(sdjournal.Redacting(slog.NewTextHandler(&log, nil), h.clean)), table, func(s string) { status = s })
		j.clean = h.clean
		j.end(&record{began: time.Now(), host: value + ".evil.test:443", verdict: egress.Deny, reason: "not-declared", ref: &refusal{403, "not-declared", ""}})
		for where, text := range map[string]string{"log": log.String(), "status": status} {
			if strings.Contains(text, value) || !strings.Contains(text, "[redacted: k].evil.test:443") {
				t.Errorf("%s, %s: %q", name, where, text)
			}
		}
	}
}

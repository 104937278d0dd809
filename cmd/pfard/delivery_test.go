package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
)

// values is a vault as delivery sees it. A nil value cannot be read.
type values map[string][]byte

func (v values) Get(key string) ([]byte, error) {
	b, ok := v[key]
	switch {
	case !ok:
		return nil, fmt.Errorf("secret %q is %w", key, vault.ErrNotFound)
	case b == nil:
		return nil, errors.New("the file is damaged")
	}
	return b, nil
}

func (v values) Seed() ([]byte, error) { return bytes.Repeat([]byte{7}, 32), nil }

func TestDelivery(t *testing.T) {
	t.Setenv("FROM_OUTSIDE", "of the environment")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	hosts, places := []egress.Endpoint{{Host: "api.github.com"}}, broker.Standard()
	brokered := generator.Credential{Name: "TOKEN", Key: "token", Deliver: declaration.Brokered, Hosts: hosts, Places: places}
	for name, tt := range map[string]struct {
		credentials []generator.Credential
		values      string // what the launcher gets, by name
		missing     string
		err         string
		brokered    int // what the bridge gets; -1: nothing at all
	}{
		"none":               {brokered: -1},
		"variable":           {credentials: []generator.Credential{{Name: "A", Key: "a"}}, values: "A=value of a", brokered: -1},
		"file":               {credentials: []generator.Credential{{Name: "A", Key: "a", Deliver: declaration.InFile}}, values: "A=value of a", brokered: -1},
		"environment":        {credentials: []generator.Credential{{Name: "A", From: "FROM_OUTSIDE"}}, values: "A=of the environment", brokered: -1},
		"missing":            {credentials: []generator.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "none"}}, missing: "B: pfar vault set none", brokered: -1},
		"missing outside":    {credentials: []generator.Credential{{Name: "B", From: "NOT_THERE"}}, missing: "B: set the environment variable NOT_THERE for pfar", brokered: -1},
		"damaged":            {credentials: []generator.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "damaged"}}, err: "damaged", brokered: -1},
		"brokered":           {credentials: []generator.Credential{{Name: "A", Key: "a"}, brokered}, values: "A=value of a TOKEN=ghp_", brokered: 1},
		"brokered, missing":  {credentials: []generator.Credential{{Name: "TOKEN", Key: "none", Deliver: declaration.Brokered, Hosts: hosts, Places: places}}, missing: "TOKEN: pfar vault set none"},
		"brokered, damaged":  {credentials: []generator.Credential{{Name: "TOKEN", Key: "damaged", Deliver: declaration.Brokered, Hosts: hosts, Places: places}}, err: "damaged"},
		"brokered, short":    {credentials: []generator.Credential{{Name: "TOKEN", Key: "short", Deliver: declaration.Brokered, Hosts: hosts, Places: places}}, err: `TOKEN: a brokered secret has 12 to 4096 bytes, this one 7: deliver it as "env"`},
		"brokered, no word":  {credentials: []generator.Credential{{Name: "TOKEN", Key: "pem", Deliver: declaration.Brokered, Hosts: hosts, Places: places}}, err: "one word of visible ASCII"},
		"brokered, variable": {credentials: []generator.Credential{{Name: "TOKEN", From: "NOT_THERE", Deliver: declaration.Brokered, Hosts: hosts, Places: places}}, missing: "TOKEN: set the environment variable NOT_THERE for pfar"},
	} {
		t.Run(name, func(t *testing.T) {
			d := delivery{vault: values{
				"a": []byte("value of a"), "token": []byte(token), "damaged": nil, "short": []byte("hunter2"),
				"pem": []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			}, learn: func(string, []byte) {}}
			p := generator.Plan{Name: "github", Credentials: tt.credentials}
			s, err := d.secrets(p)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || len(s.Values) > 0 {
					t.Errorf("%+v, %v, want the error %q", s, err, tt.err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.Missing, "; "); got != tt.missing || got != "" && len(s.Values) > 0 {
				t.Errorf("missing: %q and values %q, want %q", got, s.Values, tt.missing)
			}
			var got []string
			for _, k := range slices.Sorted(maps.Keys(s.Values)) {
				got = append(got, k+"="+string(s.Values[k]))
				if bytes.Contains(s.Values[k], []byte(token[4:])) {
					t.Errorf("the launcher gets the value of %s", k)
				}
			}
			if got := strings.Join(got, " "); !strings.HasPrefix(got, tt.values) || (got == "") != (tt.values == "") {
				t.Errorf("the launcher gets %q, want %q", got, tt.values)
			}
			if (len(s.Authority) > 0) != (tt.brokered > 0) {
				t.Errorf("the authority's certificate: %q", s.Authority)
			}
			checkMaterial(t, d, p, s, tt.brokered, tt.err == "damaged") // what cannot be brokered is no reason for others to go without
		})
	}
}

// checkMaterial wants the bridge to know as many secrets, each by the placeholder that the launcher was given.
func checkMaterial(t *testing.T, d delivery, p generator.Plan, given units.Secrets, want int, fails bool) {
	t.Helper()
	f, err := d.brokered(p)
	if want < 0 || fails {
		if f != nil || (err != nil) != (fails && want == 0) {
			t.Errorf("the bridge gets %v, %v", f, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := units.ReadSealed(f, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var m broker.Material
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Secrets) != want || m.Authority.Server != p.Name {
		t.Errorf("the bridge gets %d secrets, signed for by %q", len(m.Secrets), m.Authority.Server)
	}
	for _, s := range m.Secrets {
		if s.Placeholder != string(given.Values[s.Name]) || s.Placeholder == s.Value || len(s.Hosts) != 1 || len(s.Places) != 1 {
			t.Errorf("the bridge gets %+v, and the launcher %q", s, given.Values[s.Name])
		}
	}
}

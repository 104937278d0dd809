package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// values is a vault as delivery sees it. A nil value cannot be read.
type values map[string][]byte

func (v values) Deliver(key string) ([]byte, error) {
	b, ok := v[key]
	switch {
	case !ok:
		return nil, fmt.Errorf("secret %q is %w", key, vault.ErrNotFound)
	case b == nil:
		return nil, errors.New("the file is damaged")
	}
	return b, nil
}

func (v values) Tokens(string) (oauth.Set, []byte, bool, error) { return oauth.Set{}, nil, false, nil }

func (v values) Refused(string) {}

func (v values) Refreshes(string) (bool, string) { return false, "" }

func (v values) Seed() ([]byte, error) { return bytes.Repeat([]byte{7}, 32), nil }

func TestDelivery(t *testing.T) {
	t.Setenv("FROM_OUTSIDE", "of the environment")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	hosts, places := []egress.Endpoint{{Host: "api.github.com"}}, broker.Standard()
	brokered := plan.Credential{Name: "TOKEN", Key: "token", Deliver: broker.OnWire, Hosts: hosts, Places: places}
	for name, tt := range map[string]struct {
		credentials []plan.Credential
		values      string // what the launcher gets, by name
		missing     string
		err         string
		brokered    int // what the bridge gets; -1: nothing at all
	}{
		"none":               {brokered: -1},
		"variable":           {credentials: []plan.Credential{{Name: "A", Key: "a"}}, values: "A=value of a", brokered: -1},
		"file":               {credentials: []plan.Credential{{Name: "A", Key: "a", Deliver: broker.InFile}}, values: "A=value of a", brokered: -1},
		"environment":        {credentials: []plan.Credential{{Name: "A", From: "FROM_OUTSIDE"}}, values: "A=of the environment", brokered: -1},
		"missing":            {credentials: []plan.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "none"}}, missing: "B: pfar vault set none", brokered: -1},
		"missing outside":    {credentials: []plan.Credential{{Name: "B", From: "NOT_THERE"}}, missing: "B: set the environment variable NOT_THERE for pfar", brokered: -1},
		"damaged":            {credentials: []plan.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "damaged"}}, err: "damaged", brokered: -1},
		"brokered":           {credentials: []plan.Credential{{Name: "A", Key: "a"}, brokered}, values: "A=value of a TOKEN=ghp_", brokered: 1},
		"brokered, missing":  {credentials: []plan.Credential{{Name: "TOKEN", Key: "none", Deliver: broker.OnWire, Hosts: hosts, Places: places}}, missing: "TOKEN: pfar vault set none"},
		"brokered, damaged":  {credentials: []plan.Credential{{Name: "TOKEN", Key: "damaged", Deliver: broker.OnWire, Hosts: hosts, Places: places}}, err: "damaged"},
		"brokered, short":    {credentials: []plan.Credential{{Name: "TOKEN", Key: "short", Deliver: broker.OnWire, Hosts: hosts, Places: places}}, err: `TOKEN: a brokered secret has 12 to 4096 bytes, this one 7: deliver it as "env"`},
		"brokered, no word":  {credentials: []plan.Credential{{Name: "TOKEN", Key: "pem", Deliver: broker.OnWire, Hosts: hosts, Places: places}}, err: "one word of visible ASCII"},
		"brokered, variable": {credentials: []plan.Credential{{Name: "TOKEN", From: "NOT_THERE", Deliver: broker.OnWire, Hosts: hosts, Places: places}}, missing: "TOKEN: set the environment variable NOT_THERE for pfar"},
	} {
		t.Run(name, func(t *testing.T) {
			d := delivery{vault: values{
				"a": []byte("value of a"), "token": []byte(token), "damaged": nil, "short": []byte("hunter2"),
				"pem": []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			}, learn: func(string, []byte) {}, handing: handing{slog.New(slog.DiscardHandler), recordsAll}, stood: newStood("", nil), given: givenTo(t)}
			p := plan.Plan{Name: "github", Credentials: tt.credentials}
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
func checkMaterial(t *testing.T, d delivery, p plan.Plan, given units.Secrets, want int, fails bool) {
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

func recordsAll(audit.Record) error { return nil }

// TestDeliveryProven: a bridge that looks at a host's certificates gets what that takes, and no secret.
func TestDeliveryProven(t *testing.T) {
	d := delivery{
		vault: values{}, learn: func(string, []byte) {}, handing: handing{slog.New(slog.DiscardHandler), recordsAll},
		stood: newStood("", nil), given: givenTo(t),
	}
	p := plan.Plan{
		Name:   "vendor",
		Egress: egress.Policy{Endpoints: []egress.Endpoint{{Host: "mcp.test", Port: 443}, {Host: "other.test"}}},
		Proofs: plan.Proofs{TLSPins: map[string][]broker.Pin{"mcp.test": {{}}}},
	}
	s, err := d.secrets(p)
	if err != nil || len(s.Authority) == 0 || len(s.Values) > 0 {
		t.Errorf("the launcher gets %+v, %v", s, err)
	}
	m, err := d.material(p)
	if err != nil || m == nil || len(m.Secrets) > 0 || !slices.Equal(m.Opened, p.Egress.Endpoints[:1]) {
		t.Errorf("the bridge gets %+v, %v", m, err)
	}
}

// TestDeliveryRecords: each secret that a process is given, or is not, leaves a record, whatever way it goes, and none
// has a value in it.
func TestDeliveryRecords(t *testing.T) {
	t.Setenv("FROM_OUTSIDE", "hunter2-of-the-environment")
	hosts := []egress.Endpoint{{Host: "api.github.com"}}
	var text bytes.Buffer
	d := delivery{
		vault: values{"a": []byte("hunter2-of-a"), "damaged": nil, "token": []byte("ghp_hunter2hunter2hunter2"), "short": []byte("hunter2")},
		learn: func(string, []byte) {}, stood: newStood("", nil), given: givenTo(t),
	}
	var recorded []audit.Record
	var full error
	d.append = func(r audit.Record) error {
		if full == nil {
			recorded = append(recorded, r)
		}
		return full
	}
	d.log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	env := plan.Credential{Name: "A", Key: "a"}
	onWire := func(key string) plan.Credential {
		return plan.Credential{Name: "T", Key: key, Deliver: broker.OnWire, Hosts: hosts}
	}
	const vault = "level=INFO msg=vault operation=deliver key="
	refused := strings.ReplaceAll(vault, "INFO", "WARN")
	for name, tt := range map[string]struct {
		credentials []plan.Credential
		want        string
	}{
		"none": {nil, ""},
		"in all ways": {
			[]plan.Credential{env, {Name: "B", Key: "a", Deliver: broker.InFile}, {Name: "C", From: "FROM_OUTSIDE"}, onWire("token")},
			vault + "a deliver=env to=launcher server=x_abcdefgh outcome=done\n" + vault + "a deliver=file to=launcher server=x_abcdefgh outcome=done\n" +
				vault + "$FROM_OUTSIDE deliver=env to=launcher server=x_abcdefgh outcome=done\n" + vault + "token deliver=broker to=bridge server=x_abcdefgh outcome=done\n",
		},
		"one is missing": {
			[]plan.Credential{env, {Name: "B", Key: "none"}},
			refused + "a deliver=env to=launcher server=x_abcdefgh outcome=refused error=\"B: pfar vault set none\"\n" +
				refused + "none deliver=env to=launcher server=x_abcdefgh outcome=refused error=\"B: pfar vault set none\"\n",
		},
		"damaged": {[]plan.Credential{{Name: "B", Key: "damaged"}}, refused + "damaged deliver=env to=launcher server=x_abcdefgh outcome=refused error=\"the file is damaged\"\n"},
		"brokered, and missing": {
			[]plan.Credential{onWire("none")}, refused + "none deliver=broker to=bridge server=x_abcdefgh outcome=refused error=\"T: pfar vault set none\"\n",
		},
		"brokered, and damaged": {
			[]plan.Credential{onWire("damaged")}, refused + "damaged deliver=broker to=bridge server=x_abcdefgh outcome=refused error=\"the file is damaged\"\n",
		},
		"brokered, and another is damaged": {
			[]plan.Credential{onWire("token"), {Name: "U", Key: "damaged", Deliver: broker.OnWire, Hosts: hosts}},
			refused + "damaged deliver=broker to=bridge server=x_abcdefgh outcome=refused error=\"the file is damaged\"\n",
		},
		"too short for a broker": {
			[]plan.Credential{onWire("short")},
			refused + "short deliver=broker to=bridge server=x_abcdefgh outcome=refused error=\"T: a brokered secret has 12 to 4096 bytes, this one 7: deliver it as \\\"env\\\"\"\n",
		},
	} {
		text.Reset()
		recorded, full = nil, nil
		p := plan.Plan{Name: "x", Credentials: tt.credentials}
		p.Gateway.Session = "abcdefgh"
		s, err := d.secrets(p)
		if err := d.record(p, s, err); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f, err := d.brokered(p); err == nil && f != nil {
			f.Close()
		}
		if text.String() != tt.want || strings.Contains(text.String(), "hunter2") {
			t.Errorf("%s: got\n%swant\n%s", name, &text, tt.want)
		}
		var said strings.Builder // of the records, as the log has it
		for _, r := range recorded {
			level := map[string]string{"done": "INFO", "refused": "WARN"}[r.Outcome]
			fmt.Fprintf(&said, "level=%s msg=vault operation=%s key=%s deliver=%s to=%s server=%s outcome=%s", level, r.Method, r.Subject, r.Channel, r.To, r.Server, r.Outcome)
			if r.Reason != "" {
				fmt.Fprintf(&said, " error=%q", r.Reason)
			}
			said.WriteString("\n")
		}
		if said.String() != tt.want {
			t.Errorf("%s: recorded\n%swant\n%s", name, &said, tt.want)
		}

		full = errors.New("no space left on device") // nobody is given anything, and what is refused for another reason still is
		there := strings.Contains(tt.want, "outcome=done")
		err = d.record(p, s, err)
		f, berr := d.brokered(p)
		if err = cmp.Or(err, berr); errors.Is(err, full) != there || f != nil && there {
			t.Errorf("%s, on a full disk: %v", name, err)
		}
	}
}

// TestFormerPlaceholders: whatever bridge asks, also one that was started again, or by the next pfard, is told what a
// server may have that runs on.
func TestFormerPlaceholders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "placeholders.json")
	secret := values{"token": []byte("ghp_0123456789abcdefghijABCDEFGHIJ012345")}
	hosts := []egress.Endpoint{{Host: "api.github.com"}}
	p := plan.Plan{Name: "github", Credentials: []plan.Credential{{Name: "T", Key: "token", Deliver: broker.OnWire, Hosts: hosts}}}
	log := slog.New(slog.DiscardHandler)
	d := delivery{vault: secret, learn: func(string, []byte) {}, handing: handing{log, recordsAll}, stood: newStood(path, log), given: givenTo(t)}
	var had []string
	former := func() []string {
		t.Helper()
		m, err := d.material(p)
		if err != nil || len(m.Secrets) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		if s := m.Secrets[0]; len(had) == 0 || had[len(had)-1] != s.Placeholder {
			had = append(had, s.Placeholder)
		}
		return m.Secrets[0].Former
	}
	if got := former(); len(got) != 0 {
		t.Errorf("at first %q", got)
	}
	secret["token"] = []byte("ghp_ABCDEFGHIJabcdefghij0123456789012345") // of the same shape
	if got := former(); len(got) != 0 || len(had) != 1 {
		t.Errorf("after a value of the same shape %q, %q", got, had)
	}
	for n := range maxStood + 2 {
		secret["token"] = []byte("ghp_" + strings.Repeat("aB1", 13+n))
		if got := former(); !slices.Equal(got, had[max(0, len(had)-maxStood):len(had)-1]) {
			t.Errorf("after another shape %q, and there were %q", got, had)
		}
	}
	d.stood = newStood(path, log)
	if got := former(); !slices.Equal(got, had[len(had)-maxStood:len(had)-1]) {
		t.Errorf("the next pfard tells %q, and there were %q", got, had)
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, secret["token"]) {
		t.Errorf("the file holds a value, or is not there: %v", err)
	}
	d.stood.forget("github")
	if got := newStood(path, log).before("github", "T", "x"); len(got) != 0 {
		t.Errorf("of a server that is gone %q", got)
	}
}

package egress

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden files")

// The goldens: entries of allowed_domains in, what nft(8) prints out. The test of policies/firewall has a kernel load
// them and print them again.
func TestRulesetGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(b)
			if len(a.Files) == 0 || a.Files[0].Name != "allowed_domains" {
				t.Fatal("the archive does not begin with its entries")
			}
			got := policy(t, strings.Fields(string(a.Files[0].Data))...).Ruleset().String()
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "nft", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(a.Files) != 2 || a.Files[1].Name != "nft" || string(a.Files[1].Data) != got {
				t.Errorf("run with -update and look at the difference\n--- got\n%s", got)
			}
		})
	}
}

// verdict is what the first rule of a chain that fits does, as nft has it.
func verdict(c Chain, protocol string, to netip.AddrPort) Rule {
	for _, r := range c.Rules {
		if len(r.States) > 0 && r.States[0] != "new" || r.Action == Log {
			continue
		}
		if (!r.Destination.IsValid() || r.Destination.Contains(to.Addr())) && (r.Protocol == "" || r.Protocol == protocol) && (r.Port == 0 || r.Port == to.Port()) {
			return r
		}
	}
	if c.Accept {
		return Rule{Action: Accept}
	}
	return Rule{}
}

func TestZeroValuesOfARulesetDrop(t *testing.T) {
	if s := (Rule{}).String(); s != "drop" {
		t.Errorf("the zero rule is %q", s)
	}
	if s := (Rule{Action: 77}).String(); s != "drop" {
		t.Errorf("an unknown action is %q", s)
	}
	if r := verdict(Chain{}, "tcp", netip.MustParseAddrPort("127.0.0.1:80")); r.Action != Drop {
		t.Errorf("the zero chain ends in %q", r)
	}
}

// Whatever is declared, the namespace's own listeners stay where they are.
func TestRulesetKeepsItsListeners(t *testing.T) {
	everything := []string{
		"127.0.0.1:53", "127.0.0.1:9876", "127.0.0.1:9877", "127.0.0.1", "127.0.0.0/8", "127.0.0.0/8:53", "127.0.0.0/8:9876",
		"127.0.0.0/8:9877", "[::1]:9877", "[::1]:9876", "[::1]:53", "127.0.0.1:11434",
	}
	p := policy(t, everything...)
	divert, out := p.Ruleset().Chains[0], p.Ruleset().Chains[1]
	for _, c := range []struct {
		to   string
		want Action
	}{
		{"127.0.0.1:53", Accept}, {"127.0.0.1:9876", Accept}, {"127.0.0.1:9877", Accept}, {"[::1]:9877", Accept},
		{"127.0.0.1:80", Redirect}, {"127.0.0.1:443", Redirect}, {"127.0.0.1:11434", Redirect},
		{"127.0.0.2:53", Redirect}, {"127.0.0.2:9876", Redirect}, {"127.0.0.2:9877", Redirect}, {"[::1]:9876", Redirect}, {"[::1]:53", Redirect},
		{"127.0.0.1:8080", Accept}, {"127.0.0.2:11434", Accept}, {"[::1]:11434", Accept}, {"192.0.2.7:443", Accept},
	} {
		to := netip.MustParseAddrPort(c.to)
		if r := verdict(divert, "tcp", to); r.Action != c.want {
			t.Errorf("tcp to %s: %q", to, r)
		}
		if r := verdict(divert, "udp", to); r.Action != Accept {
			t.Errorf("udp to %s: %q", to, r)
		}
		if r := verdict(out, "udp", to); (r.Action == Accept) != to.Addr().IsLoopback() {
			t.Errorf("udp to %s leaves by %q", to, r)
		}
	}
}

// What Decide allows by its address arrives at the bridge, and what does not arrive leads nowhere but to loopback.
func TestRulesetAgreesWithDecide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr {
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{byte(10 + r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(4))})
		}
		a := [16]byte{0x26, 0x06, 15: byte(r.IntN(4))}
		a[3], a[7] = byte(r.IntN(2)), byte(r.IntN(2))
		return netip.AddrFrom16(a)
	}
	ports := []uint16{0, 80, 443, 5432}
	for range 300 {
		var p Policy
		for range r.IntN(8) {
			a := address()
			bits := 8 + r.IntN(a.BitLen()-7)
			p.Endpoints = append(p.Endpoints, Endpoint{Prefix: netip.PrefixFrom(a, bits).Masked(), Port: ports[r.IntN(len(ports))]})
		}
		rules := p.Ruleset()
		for range 50 {
			to := netip.AddrPortFrom(address(), ports[1+r.IntN(len(ports)-1)])
			allowed := p.Decide(to.Addr().String(), to.Port()).Verdict == Allow
			diverted := verdict(rules.Chains[0], "tcp", to)
			if allowed && diverted.Action != Redirect {
				t.Fatalf("%+v allows %v, which is not redirected:\n%s", p, to, rules)
			}
			if diverted.Action == Redirect && diverted.RedirectTo != RedirectPort {
				t.Fatalf("%v goes to port %d", to, diverted.RedirectTo)
			}
			if left := verdict(rules.Chains[1], "tcp", to); left.Action != RejectReset {
				t.Fatalf("%v is %q", to, left)
			}
		}
	}
}

func TestRulesetIsOfEntriesNotOfTheirOrder(t *testing.T) {
	entries := []string{"192.0.2.0/24:5432", "192.0.2.0/25:5432", "192.0.2.7", "192.0.2.7:443", "2001:db8::/32", "[2001:db8::1]:80", "192.0.2.7", "198.0.0.0/8"}
	want := policy(t, entries...).Ruleset()
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		r.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		got := policy(t, entries...).Ruleset()
		for _, c := range got.Chains {
			for i := range c.Rules { // of two entries that mean one rule, either is named
				c.Rules[i].Comment = ""
			}
		}
		for _, c := range want.Chains {
			for i := range c.Rules {
				c.Rules[i].Comment = ""
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("of %q\n%s", entries, got)
		}
	}
}

func TestRulesetSkipsWhatIsNoEntry(t *testing.T) {
	none := Policy{}.Ruleset()
	for _, e := range []Endpoint{
		{}, {Port: 443}, {Wildcard: true},
		{Host: "x.example", Prefix: netip.MustParsePrefix("192.0.2.0/24")},
		{Prefix: netip.MustParsePrefix("0.0.0.0/0")},
		{Prefix: netip.MustParsePrefix("::ffff:192.0.2.7/128")},
	} {
		if got := (Policy{Endpoints: []Endpoint{e}}).Ruleset(); !reflect.DeepEqual(got, none) {
			t.Errorf("%+v makes a rule:\n%s", e, got)
		}
	}
}

func TestRulesetIsAsLongAsItsEntries(t *testing.T) {
	var p Policy
	for i := range 256 { // as many as a declaration may hold
		p.Endpoints = append(p.Endpoints, Endpoint{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i))})
	}
	if n := len(p.Ruleset().Chains[0].Rules); n != len(divert())+2*256 {
		t.Errorf("%d rules", n)
	}
}

func TestRulesetAsJSON(t *testing.T) {
	want := policy(t, "192.0.2.0/24:5432", "[2001:db8::1]:443").Ruleset()
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Ruleset
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as\n%s\n%v", b, got, err)
	}
}

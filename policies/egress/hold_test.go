package egress

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// readHold reads the first file of a golden: "slice LEVEL ID", "dns ADDRESS:PORT", "bridge NAME LEVEL ID", and below it
// "allow ADDRESS:PORT DURATION" and "listen PORT".
func readHold(t *testing.T, text string) Hold {
	t.Helper()
	var h Hold
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		var err error
		cgroup := func(s ...string) (c Cgroup) {
			_, err = fmt.Sscan(strings.Join(s, " "), &c.Level, &c.ID)
			return c
		}
		switch f[0] {
		case "slice":
			h.Slice = cgroup(f[1:]...)
		case "dns":
			h.DNS = append(h.DNS, netip.MustParseAddrPort(f[1]))
		case "bridge":
			h.Bridges = append(h.Bridges, Bridge{Server: f[1], Cgroup: cgroup(f[2:]...)})
		case "listen":
			_, err = fmt.Sscan(f[1], &h.Bridges[len(h.Bridges)-1].Listens)
		case "allow":
			to := netip.MustParseAddrPort(f[1])
			left, derr := time.ParseDuration(f[2])
			b := &h.Bridges[len(h.Bridges)-1]
			b.Allowed, err = append(b.Allowed, Allowed{to.Addr(), to.Port(), noon.Add(left)}), derr
		default:
			t.Fatalf("line %q", lines.Text())
		}
		if err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
	}
	return h
}

// The goldens: what is to hold in, what nft(8) prints out. The test of policies/firewall/host has a kernel load them
// and print them again.
func TestHoldGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/hold/*.txtar")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(b)
			h := readHold(t, string(a.Files[0].Data))
			got := h.Table(noon).String()
			encoded, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "json", Data: append(encoded, '\n')}, txtar.File{Name: "nft", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(a.Files) != 3 || string(a.Files[1].Data) != string(encoded)+"\n" || string(a.Files[2].Data) != got {
				t.Errorf("run with -update and look at the difference\n--- got\n%s\n%s", encoded, got)
			}
		})
	}
}

func TestTheZeroHoldRejects(t *testing.T) {
	table := Hold{}.Table(noon)
	i := slices.IndexFunc(table.Chains, func(c HostChain) bool { return c.Name == "bridges" })
	rules := table.Chains[i].Rules
	if len(rules) != 3 || rules[0].Under != true || rules[1].Action != RejectReset || rules[2].Action != RejectAdmin || rules[2].Protocol != "" {
		t.Errorf("bridges that nobody knows meet %v", rules)
	}
	if s := (HostRule{}).String(); s != "drop" {
		t.Errorf("the zero rule is %q", s)
	}
	// A bridge without a cgroup would be everybody, and have the slice's own rule never met.
	all := Hold{Slice: Cgroup{1, 1}, Bridges: []Bridge{{Server: "x"}}}.Table(noon).String()
	if strings.Contains(all, "goto") {
		t.Errorf("a bridge without a cgroup has a rule:\n%s", all)
	}
}

func TestClamp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		-time.Hour: 10 * time.Second, 0: 10 * time.Second, time.Minute: time.Minute, time.Hour: time.Hour, 1 << 62: time.Hour,
	} {
		if got := Clamp(d); got != want {
			t.Errorf("Clamp(%v) is %v, want %v", d, got, want)
		}
	}
}

func TestExtend(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")
	soon, late := noon.Add(time.Minute), noon.Add(time.Hour)
	list := Extend(nil, []netip.Addr{a, b, a}, 443, noon, soon)
	if want := []Allowed{{a, 443, soon}, {b, 443, soon}}; !slices.Equal(list, want) {
		t.Errorf("the first are %v", list)
	}
	list = Extend(list, []netip.Addr{a, c}, 443, noon, late)
	if want := []Allowed{{b, 443, soon}, {a, 443, late}, {c, 443, late}}; !slices.Equal(list, want) {
		t.Errorf("what is allowed again is not the newest: %v", list)
	}
	list = Extend(list, []netip.Addr{a}, 443, noon, soon)
	if i := slices.Index(list, Allowed{a, 443, late}); i != 2 {
		t.Errorf("what is allowed again has a shorter time: %v", list)
	}
	list = Extend(list, []netip.Addr{a}, 80, soon.Add(1), late)
	if slices.ContainsFunc(list, func(x Allowed) bool { return x.Addr == b }) || len(list) != 3 {
		t.Errorf("what has expired is still there: %v", list)
	}
}

func TestExtendIsBounded(t *testing.T) {
	var list []Allowed
	first := netip.MustParseAddr("198.51.100.7")
	list = Extend(list, []netip.Addr{first}, 443, noon, noon.Add(time.Hour))
	many := make([]netip.Addr, 4*MaxAllowed)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
	}
	for chunk := range slices.Chunk(many, 16) {
		list = Extend(list, chunk, 443, noon, noon.Add(time.Minute))
		if len(list) > MaxAllowed {
			t.Fatalf("%d are allowed", len(list))
		}
	}
	if list[0].Addr == first || list[MaxAllowed-1].Addr != many[len(many)-1] {
		t.Errorf("of too many, the oldest stay: from %v to %v", list[0], list[MaxAllowed-1])
	}
	if n := len(Extend(nil, many, 443, noon, noon.Add(time.Minute))); n != MaxAllowed {
		t.Errorf("%d are allowed at once", n)
	}
}

// The same name servers as package net, which the bridge asks with.
func TestNameServers(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "[127.0.0.1:53 [::1]:53]"},
		{"# nameserver 192.0.2.1\n;nameserver 192.0.2.2\nsearch lan\n", "[127.0.0.1:53 [::1]:53]"},
		{"nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n", "[127.0.0.53:53]"},
		{"nameserver 192.0.2.1\r\nnameserver\t2001:db8::1 # or so\nnameserver fe80::1%eth0", "[192.0.2.1:53 [2001:db8::1]:53 [fe80::1%eth0]:53]"},
		{"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n", "[192.0.2.1:53 192.0.2.2:53 192.0.2.3:53]"},
		{"nameserver\nnameserver dns.example\nnameserver 192.0.2.1:53\nnameservers 192.0.2.2\n", "[127.0.0.1:53 [::1]:53]"},
	} {
		if got := fmt.Sprint(NameServers(c.text)); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

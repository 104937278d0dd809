package main

import (
	"context"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/systemd"
)

func TestHasListener(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1CF9 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:1CFA 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 100 0 0 10 0
   2: garbage
`
	for port, want := range map[uint16]bool{7417: true, 7418: false /* connected, not listening */, 80: false, 0: false} {
		if got, err := hasListener(strings.NewReader(table), port); got != want || err != nil {
			t.Errorf("port %d: %v, %v", port, got, err)
		}
	}
}

// TestAPortThatIsNotOurs is no endpoint, which a token would be sent to, and pfar says so.
func TestAPortThatIsNotOurs(t *testing.T) {
	d, _, _ := fixture(t)
	for _, tt := range []struct {
		port            systemd.Port
		endpoint, fault string
	}{
		{systemd.Port{Address: "127.0.0.1:7417"}, "http://127.0.0.1:7417/mcp", ""},
		{systemd.Port{Address: "127.0.0.1:7417", Failed: true}, "", "another program has the port 127.0.0.1:7417"},
		{systemd.Port{Failed: true}, "", "pfar-gateway-http.socket is wrong"},
		{systemd.Port{}, "", ""},
	} {
		ended, cancel := context.WithCancel(t.Context())
		cancel() // nobody takes it here
		if err := d.do(func() error { d.gateway.portTurned(ended, tt.port); return nil }); err != nil {
			t.Fatal(err)
		}
		r := d.reportNow(t)
		if r.Endpoint != tt.endpoint || !strings.HasPrefix(r.PortFault, tt.fault) || (r.PortFault == "") != (tt.fault == "") {
			t.Errorf("%+v: endpoint %q, fault %q", tt.port, r.Endpoint, r.PortFault)
		}
		if noted := strings.Contains(strings.Join(r.Notes, "\n"), "clients of HTTP do not get in"); noted != (tt.fault != "") {
			t.Errorf("%+v: notes %q", tt.port, r.Notes)
		}
	}
}

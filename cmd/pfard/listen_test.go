package main

import (
	"net"
	"strings"
	"testing"
)

// TestListenLoopback: what others could reach is not listened on, and each refusal says what to write.
func TestListenLoopback(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, address := range []struct{ value, want string }{
		{"9464", "want an address and a port, 127.0.0.1:9464"},
		{":9464", "want an address and a port"},
		{"localhost:9464", "want an address and a port"},
		{"127.0.0.1", "want an address and a port"},
		{"127.0.0.1:99999", "want an address and a port"},
		{"0.0.0.0:9464", "only loopback addresses"},
		{"[::]:9464", "only loopback addresses"},
		{"192.0.2.1:9464", "only loopback addresses"},
		{"127.0.0.1:0", "port 0 cannot be scraped"},
		{taken.Addr().String(), "choose one with --metrics"},
	} {
		l, err := listenMetrics(address.value)
		if err == nil {
			l.Close()
			t.Errorf("%q is listened on", address.value)
			continue
		}
		if !strings.Contains(err.Error(), address.want) || !strings.Contains(err.Error(), "etrics") && !strings.Contains(err.Error(), "listening on") {
			t.Errorf("%q: %v, want %q", address.value, err, address.want)
		}
	}
	l, err := listenLoopback("--listen", "127.0.0.1:0", "127.0.0.1:7417")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		t.Errorf("listens on %v", l.Addr())
	}
}

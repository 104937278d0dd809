package local

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/bridge"
)

// gatewayScript stands in for the gateway: it writes what it got to its log.
const gatewayScript = `#!/bin/sh
echo "descriptors $LISTEN_FDS $LISTEN_FDNAMES"
echo "arguments $*"
env | grep '^OTEL_' | sort
env | grep -c SECRET
exec sleep 1000
`

// startedGateway runs the stand-in and returns what it wrote.
func startedGateway(t *testing.T, change func(*Gateway)) string {
	t.Helper()
	bin, run, state := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{bin, filepath.Dir(bin)} { // another user is to run it, if this is root
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := putProgram(filepath.Join(bin, "pfar-gateway"), []byte(gatewayScript)); err != nil {
		t.Fatal(err)
	}
	g := testGateway(t, run)
	g.Control = ""
	if change != nil {
		change(&g)
	}
	r, err := New(Config{Log: quiet(), Bin: bin, Run: run, State: state, Gateway: g,
		Events: func(units.Event) {}, Bridges: bridge.NewTalks(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var log string
	eventually(t, "the gateway has written all", func() bool {
		b, _ := os.ReadFile(r.dirs.log(units.GatewayLog))
		log = string(b)
		return strings.HasSuffix(log, "0\n") || strings.HasSuffix(log, "1\n")
	})
	return log
}

// TestGatewayGetsTracing: of pfard's environment the gateway gets what says where traces go, and nothing else.
func TestGatewayGetsTracing(t *testing.T) {
	for _, e := range tracing(os.Environ()) { // of whoever runs the test
		name, _, _ := strings.Cut(e, "=")
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a b\"c'=d")
	t.Setenv("XOTEL_SECRET", "x")
	t.Setenv("otel_secret_SECRET", "x")
	t.Setenv("SECRET_OF_PFARD", "x")
	want := strings.Join([]string{
		"descriptors 5 " + strings.Join([]string{
			units.FDHTTP, units.FDUnix, units.FDServers, units.FDOperator, units.FDPasskey,
		}, ":"),
		"arguments --pins PINS --state STATE --inspectors DIR",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_HEADERS=api-key=a b\"c'=d", "0", "",
	}, "\n")
	if got := regexp.MustCompile(`--pins \S+/pins --state \S+/gateway --inspectors \S+/inspect`).ReplaceAllString(startedGateway(t, nil), "--pins PINS --state STATE --inspectors DIR"); got != want {
		t.Errorf("the gateway saw\n%s\nwant\n%s", got, want)
	}
}

// TestGatewayGetsMetricsListener: only if there is one.
func TestGatewayGetsMetricsListener(t *testing.T) {
	got := startedGateway(t, func(g *Gateway) {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		g.Metrics = l
	})
	if want := "descriptors 6 http:unix:servers:operator:passkey:metrics\n"; !strings.HasPrefix(got, want) {
		t.Errorf("the gateway saw\n%s\nwant\n%s", got, want)
	}
}

func TestGatewayAnchors(t *testing.T) {
	good := strings.Repeat("0a", 32)
	for text, want := range map[string]bool{
		"7 " + good: true, "": false, "7": false, "-1 " + good: false, "7 " + strings.ToUpper(good): false, "7 0a": false,
		"7 " + good + "\nx": false, "7  " + good: false, "7 " + good + " chain=pfard": false,
	} {
		anchor, told := anchorIn(text)
		if told != want || told && anchor != (units.GatewayAnchor{Seq: 7, Hash: good}) {
			t.Errorf("%q: told %v, want %v", text, told, want)
		}
	}
}

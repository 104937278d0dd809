package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// get returns the status and body of a page.
func get(t *testing.T, via http.RoundTripper, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestTelemetryIsServed: numbers are on the operator's socket always, on loopback only where they are asked for, and
// nowhere else.
func TestTelemetryIsServed(t *testing.T) {
	p := start(t, "127.0.0.1:0", "http:unix:servers:operator:metrics", token)
	p.await(t, "READY=1")
	via := &http.Transport{}
	defer via.CloseIdleConnections()
	if code, body := get(t, via, "http://"+p.scrape+"/metrics"); code != 200 || !strings.Contains(body, "pfar_build_info{") {
		t.Errorf("metrics: %d %.200s", code, body)
	}
	if code, body := get(t, via, "http://"+p.scrape+"/stats"); code != 404 {
		t.Errorf("statistics where metrics are: %d %s", code, body)
	}
	if code, body := p.ask(t, "operator", "GET", "/stats", ""); code != 200 || !strings.Contains(body, `"servers":[`) {
		t.Errorf("statistics: %d %s", code, body)
	}
	if code, body := p.ask(t, "unix", "GET", "/stats", ""); code != 404 {
		t.Errorf("statistics for clients: %d %s", code, body)
	}
	for _, path := range []string{"/stats", "/metrics"} {
		if code, body := get(t, via, "http://"+p.addr+path); code != 401 {
			t.Errorf("%s on the clients' endpoint: %d %s", path, code, body)
		}
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
}

func TestMetricsOnlyOnLoopback(t *testing.T) {
	p := start(t, "0.0.0.0:0", "unix:servers:metrics", token)
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.log.String(), "only loopback") {
		t.Errorf("%v, %q", err, p.log)
	}
}

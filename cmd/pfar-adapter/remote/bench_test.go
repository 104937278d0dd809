package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"
)

// BenchmarkCall is a call through the adapter, and the same call made directly over HTTPS, to servers that answer at
// once and after 20 ms, with JSON and with an event stream. p50 is the middle of all calls.
func BenchmarkCall(b *testing.B) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
		for _, streams := range []bool{false, true} {
			name := fmt.Sprintf("%v/%s", delay, map[bool]string{false: "json", true: "stream"}[streams])
			s := httptest.NewTLSServer(benchServer(delay, streams))
			b.Run(name+"/direct", func(b *testing.B) { benchDirect(b, s) })
			b.Run(name+"/adapter", func(b *testing.B) { benchAdapter(b, s) })
			s.Close()
		}
	}
}

func benchServer(delay time.Duration, streams bool) http.Handler {
	h := &honest{session: "s"}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		time.Sleep(delay)
		if streams {
			asStream(w)
			event(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
			return
		}
		asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
	}
	return h
}

func trusted(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func median(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
}

func benchDirect(b *testing.B, s *httptest.Server) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted(s)}}}
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		begun := time.Now()
		r, err := http.NewRequest(http.MethodPost, s.URL+"/mcp", bytes.NewReader(fmt.Appendf(nil, call, n)))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", typeJSON)
		r.Header.Set("Accept", typeJSON+", "+typeStream)
		response, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		took = append(took, time.Since(begun))
	}
	median(b, took)
}

func benchAdapter(b *testing.B, s *httptest.Server) {
	u, err := url.Parse(s.URL + "/mcp")
	if err != nil {
		b.Fatal(err)
	}
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	done := make(chan error, 1)
	o := Options{URL: u, Limits: DefaultLimits(), Roots: trusted(s)}
	go func() { done <- Run(context.Background(), o, stdin, stdout, io.Discard) }()
	lines := bufio.NewReader(out)
	ask := func(line string) {
		io.WriteString(in, line+"\n")
		if answer, err := lines.ReadSlice('\n'); err != nil || bytes.Contains(answer, []byte(`"error"`)) {
			b.Fatalf("%s, %v", answer, err)
		}
	}
	ask(initialize)
	io.WriteString(in, initialized+"\n")
	var took []time.Duration
	for n := 2; b.Loop(); n++ {
		begun := time.Now()
		ask(fmt.Sprintf(call, n))
		took = append(took, time.Since(begun))
	}
	median(b, took)
	in.Close()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

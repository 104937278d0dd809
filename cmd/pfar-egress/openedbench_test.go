package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkBrokered makes each request twice, by turns: with a secret put into it, and through an unopened tunnel to
// the same host. Added is the median of the differences. Client, bridge and host share this process and its processors.
func BenchmarkBrokered(b *testing.B) {
	const bulk = 32 << 20
	o := newOpening(b, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bulk" {
			chunk := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1000))
			for n := 0; n < bulk; n += len(chunk) {
				w.Write(chunk)
			}
			return
		}
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"object":"list","results":[]}`)
	}, func(o *opening) { o.proxy.limits.rate = 1e6 })
	o.trusted.AddCert(o.upstream.authority)
	for _, c := range []struct {
		name, path string
		h2, kept   bool
	}{
		{"kept connection", "/", false, true}, {"kept connection, HTTP∕2", "/", true, true}, {"new connection", "/", false, false}, {"32 MiB", "/bulk", false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			kinds := []struct {
				host   string
				client *http.Client
			}{{"plain.allowed.test", o.client(c.h2)}, {apiHost, o.client(c.h2)}}
			for _, k := range kinds {
				k.client.Transport.(*http.Transport).DisableKeepAlives = !c.kept
				o.once(b, k.client, k.host, c.path)
			}
			var took [2][]time.Duration
			var added []time.Duration
			for i := 0; b.Loop(); i++ {
				var turn [2]time.Duration
				for j := range kinds {
					j = (i + j) % 2
					turn[j] = o.once(b, kinds[j].client, kinds[j].host, c.path)
					took[j] = append(took[j], turn[j])
				}
				added = append(added, turn[1]-turn[0])
			}
			b.ReportMetric(micros(took[0]), "tunnel-µs")
			b.ReportMetric(micros(took[1]), "brokered-µs")
			b.ReportMetric(micros(added), "added-µs")
		})
	}
}

func (o *opening) once(b *testing.B, client *http.Client, host, path string) time.Duration {
	b.Helper()
	begun := time.Now()
	r := newRequest(b, "POST", "https://"+host+path, strings.NewReader(`{"query":"a page","filter":{"value":"page","property":"object"}}`))
	r.Header.Set("Authorization", "Bearer "+o.token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n == 0 || resp.StatusCode != 200 {
		b.Fatal(resp.Status, n, err)
	}
	return time.Since(begun)
}

// micros is the median in microseconds.
func micros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1000
}

// TestManyOpened: the proxy serves a few hundred connections at once, and bounds what they hold. The host speaks
// HTTP/1.1: on a busy machine a client's first frame takes more than the 2 s that Go's HTTP/2 server gives it.
func TestManyOpened(t *testing.T) {
	o := newOpening(t, nil, func(o *opening) { o.upstream.h2 = false })
	const many = 200
	errs := make(chan error, many)
	for range many {
		go func() {
			r, _ := http.NewRequest("GET", "https://"+apiHost+"/", nil)
			r.Header.Set("Authorization", o.token)
			client := o.client(false)
			resp, err := client.Do(r)
			if err == nil {
				said, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					err = fmt.Errorf("it is %s: %s", resp.Status, said)
				}
			}
			errs <- err
		}()
	}
	for range many {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

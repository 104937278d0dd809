package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// closing is a connection that tells when net/http closes it, which it does when it has read its end.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestResend has the server close a kept connection just after net/http has chosen it for a POST.
func TestResend(t *testing.T) {
	var handled atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		io.Copy(w, r.Body)
	}))
	defer server.Close()
	inner := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &closing{Conn: conn, closed: make(chan struct{})}, nil
	}}
	defer inner.CloseIdleConnections()
	closed := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			server.CloseClientConnections()
			<-info.Conn.(*closing).closed
		}
	}})
	post := func(ctx context.Context, r http.RoundTripper) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "once" {
			t.Fatalf("answer %q, %v", body, err)
		}
		return nil
	}

	// net/http notices in one of several ways. The one that is mended here must come, in its words.
	met := false
	for range 1000 {
		if err := post(t.Context(), inner); err != nil {
			t.Fatal(err)
		}
		if err := post(closed, inner); err != nil {
			if met = err.Error() == closedIdle; !met {
				t.Fatalf("net/http says %q, want %q", err, closedIdle)
			}
			break
		}
	}
	if !met {
		t.Fatal("net/http sends such a request again by itself: resend can go")
	}
	for range 100 {
		handled.Store(0)
		if err := post(t.Context(), inner); err != nil {
			t.Fatal(err)
		}
		if err := post(closed, resend{inner}); err != nil {
			t.Fatal(err)
		}
		if got := handled.Load(); got != 2 {
			t.Fatalf("%d requests handled, want 2", got)
		}
	}
}

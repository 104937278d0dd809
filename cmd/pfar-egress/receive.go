package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/oauth"
)

// receiver waits on loopback for the browser that comes back from a provider. Anybody on this machine can ask there:
// but for the one answer that has the login's state, all are refused.
type receiver struct {
	port   uint16
	came   chan oauth.Judgement // gets one
	judge  oauth.Redirect
	server *http.Server

	mu   sync.Mutex
	over bool // the answer has come
}

// Bounds of one request: it has no body, and its query is short.
const (
	requestTime = 5 * time.Second
	maxRequest  = 16 << 10
)

func awaitBrowser(task oauth.Task, state string) (*receiver, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(task.Port))))
	if err != nil && task.Port != 0 { // it is taken, and most providers let the port vary
		l, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the browser: %w", err)
	}
	r := &receiver{
		port: uint16(l.Addr().(*net.TCPAddr).Port), came: make(chan oauth.Judgement, 1),
		judge: oauth.Redirect{Host: l.Addr().String(), State: state, Issuer: task.Issuer, At: task.Endpoint,
			Unnamed: task.Unnamed},
	}
	r.server = &http.Server{
		Handler: r, ReadTimeout: requestTime, WriteTimeout: requestTime, MaxHeaderBytes: maxRequest,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it may quote a request
	}
	r.server.SetKeepAlivesEnabled(false)
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// redirect is the address that the browser comes back to.
func (r *receiver) redirect() string {
	return oauth.Loopback(r.port)
}

// close lets the browser have its page, and takes no more requests.
func (r *receiver) close() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		r.server.Close()
	}
}

const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>pfar</title>
<p>pfar has the answer of the provider. You can close this page: pfar login says how it went.</p>
`

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address has the code
	h.Set("X-Content-Type-Options", "nosniff")
	j := r.judge.Judge(q.Method, q.Host, q.URL.EscapedPath(), q.URL.RawQuery)
	if j.Code == "" && j.End == nil {
		status := j.Status
		if status == 0 {
			status = http.StatusBadRequest
		}
		http.Error(w, "This is not the answer that pfar waits for.", status)
		return
	}
	r.mu.Lock()
	late := r.over
	r.over = true
	r.mu.Unlock()
	if late {
		http.Error(w, "pfar has had its answer.", http.StatusGone)
		return
	}
	r.came <- j
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, page)
}

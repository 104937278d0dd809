package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/inspector"
)

const (
	mostRequest  = 1 << 20     // bytes of one request of pfar-chat; an event has at most 64 KiB
	wayHeadTime  = time.Minute // for the head of a request
	wayIdleTime  = 2 * time.Minute
	wayEndTime   = 5 * time.Second // to finish requests when this process ends
	homeBusyTime = 2 * time.Minute // a homeserver holds a request for news for half a minute
)

// way carries requests of pfar-chat to the homeserver of the plan, until ctx is done. pfar-chat has neither the
// account's access token nor a network.
func (m *model) way(ctx context.Context, l net.Listener, log *slog.Logger) error {
	handler, err := m.homeserver(log)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: wayHeadTime, IdleTimeout: wayIdleTime, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	stopped := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), wayEndTime)
		defer cancel()
		if server.Shutdown(end) != nil {
			_ = server.Close() // open requests end with the process
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// homeserver returns a handler that forwards requests to the homeserver, with the access token. It refuses requests
// that are not for the client API.
func (m *model) homeserver(log *slog.Logger) (http.Handler, error) {
	to, err := url.Parse(m.URL)
	if err != nil {
		return nil, errors.New("url is not an address") // the URL may contain a secret
	}
	proxy := &httputil.ReverseProxy{
		Transport: m.client.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, ""
			sent := http.Header{}
			for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
				if v := r.In.Header.Get(name); v != "" {
					sent.Set(name, v)
				}
			}
			sent.Set("Authorization", "Bearer "+m.key)
			r.Out.Header = sent
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				log.Warn("cannot reach the homeserver", "chat", m.Name, "error", unquoted(err).Error())
			}
			w.WriteHeader(http.StatusBadGateway)
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(path.Clean(r.URL.Path), inspector.ClientAPI):
			http.Error(w, "pfar-egress passes on only requests to the homeserver's client API", http.StatusForbidden)
		case r.Header.Get("Upgrade") != "" || r.Method == http.MethodConnect:
			http.Error(w, "pfar-egress passes on only ordinary HTTP requests", http.StatusForbidden)
		case m.lacks != nil:
			http.Error(w, "pfar-egress has no access token", http.StatusServiceUnavailable)
		default:
			ctx, cancel := context.WithTimeout(r.Context(), homeBusyTime)
			defer cancel()
			r = r.WithContext(ctx)
			r.Body = http.MaxBytesReader(w, r.Body, mostRequest)
			proxy.ServeHTTP(w, r)
		}
	}), nil
}

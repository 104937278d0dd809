package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
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

// endpoints are the requests that pfar-chat makes. In a path, ROOM, EVENT and WORD stand for one segment: an id of a
// room, an id of an event, and any one.
var endpoints = []string{
	"GET v3/account/whoami",
	"GET v3/pushrules/global/override/.m.rule.master/enabled",
	"PUT v3/pushrules/global/override/.m.rule.master/enabled",
	"GET v3/sync",
	"POST v3/rooms/ROOM/join",
	"POST v3/rooms/ROOM/leave",
	"POST v3/rooms/ROOM/forget",
	"GET v3/rooms/ROOM/messages",
	"GET v3/rooms/ROOM/event/EVENT",
	"GET v3/rooms/ROOM/state",
	"PUT v3/rooms/ROOM/state/org.matrix.room.preview_urls/",
	"PUT v3/rooms/ROOM/send/m.room.message/WORD",
	"PUT v3/rooms/ROOM/redact/EVENT/WORD",
}

// passes reports whether a request is one of the endpoints. Its path is taken as it goes on, so that no part of it is
// more than one segment to the homeserver or to a proxy before it.
func passes(method string, u *url.URL) bool {
	at, ok := strings.CutPrefix(u.EscapedPath(), inspector.ClientAPI)
	if !ok {
		return false
	}
	segments := strings.Split(at, "/")
	return slices.ContainsFunc(endpoints, func(one string) bool {
		verb, path, _ := strings.Cut(one, " ")
		want := strings.Split(path, "/")
		return verb == method && slices.EqualFunc(segments, want, fits)
	})
}

// fits reports whether a segment of a path, as it is escaped, is the wanted one.
func fits(segment, want string) bool {
	sigil := ""
	switch want {
	case "ROOM":
		sigil = "!"
	case "EVENT":
		sigil = "$"
	case "WORD":
	default:
		return segment == want
	}
	word, err := url.PathUnescape(segment)
	return err == nil && len(word) > len(sigil) && len(word) <= maxSegment && strings.HasPrefix(word, sigil) &&
		word != "." && word != ".." && !strings.ContainsFunc(word, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`/\%?#;`, r)
	})
}

const maxSegment = 255 // bytes of an id (Matrix, appendices)

// homeserver passes requests of pfar-chat on to the homeserver, with the access token, and answers as it does. All
// others are refused.
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
		case !passes(r.Method, r.URL):
			http.Error(w, "pfar-egress passes on the requests that pfar-chat makes, and no others", http.StatusForbidden)
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

package telemetry

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/pfar/pfar/units"
)

// maxScrapers bounds the connections of the metrics listener, which anybody on this machine may open.
const maxScrapers = 16

// ServeMetrics begins to answer GET /metrics on the listener, which must be on loopback. The caller closes the server,
// and with it the listener. There is no token: it shows names of servers and tools and numbers, no secret.
func (t *Telemetry) ServeMetrics(l *net.TCPListener) (*http.Server, error) {
	addr := l.Addr().(*net.TCPAddr)
	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("serving metrics on %s: only loopback addresses are served; use an SSH forward or a reverse proxy", addr)
	}
	s := &http.Server{
		Handler:           guard(t.Metrics(), addr),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       2 * time.Minute, // longer than most pause between two scrapes
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(t.log.Handler(), slog.LevelDebug), // mostly scanners' noise
		// OPTIONS * is answered like any other request that is not a scrape.
		DisableGeneralOptionsHandler: true,
	}
	go func() {
		patient := units.PatientListener{Listener: l, Warn: func(err error) {
			t.log.Warn("accepting scrapers, trying again", "error", err.Error())
		}}
		if err := s.Serve(netutil.LimitListener(patient, maxScrapers)); err != nil && err != http.ErrServerClosed {
			t.log.Warn("serving metrics, ignoring", "error", err.Error())
		}
	}()
	return s, nil
}

// guard lets GET /metrics pass, and only with a Host that is this listener's: a page whose name resolves to 127.0.0.1
// could read the answer otherwise (DNS rebinding). A scraper sends no Origin.
func guard(metrics http.Handler, addr *net.TCPAddr) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case !ownHost(r.Host, addr):
			http.Error(w, "Host is not this endpoint's", http.StatusForbidden)
		case len(r.Header["Origin"]) > 0:
			http.Error(w, "a browser's page may not read this", http.StatusForbidden)
		case r.URL.Path != "/metrics":
			http.Error(w, "there is nothing here; metrics are at /metrics", http.StatusNotFound)
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			http.Error(w, "the method is GET", http.StatusMethodNotAllowed)
		default:
			metrics.ServeHTTP(w, r)
		}
	})
}

func ownHost(host string, addr *net.TCPAddr) bool {
	port := strconv.Itoa(addr.Port)
	for _, name := range [...]string{addr.IP.String(), "127.0.0.1", "::1", "localhost"} {
		own := net.JoinHostPort(name, port)
		if strings.EqualFold(host, own) || port == "80" && strings.EqualFold(host, strings.TrimSuffix(own, ":80")) {
			return true
		}
	}
	return false
}

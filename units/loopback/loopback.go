// Package loopback serves pages on 127.0.0.1 to the browser of a person at this machine: it listens where no server
// reaches, and tells a browser's own requests from those that other pages have it send.
package loopback

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// What others may cost a process. A browser opens a few connections, some of which it never uses.
const (
	MaxConns   = 16
	maxHeader  = 8 << 10 // bytes
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	WriteTime  = 10 * time.Second
)

// Main runs the process that serves pages until it ends or is told to, and returns its exit code. Secrets, or what lets
// somebody in, are in its memory: nobody gets a core of it, and none of its user's processes looks into it (ptrace(2)).
func Main(name string, run func(context.Context) error) int {
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// errTaken is the error of a port that cannot be had.
var errTaken = errors.New("another program has the port")

// Listen listens on loopback alone, of IPv4, whose address a link has: on a port, or with 0 on any of those for pages
// that is free.
func Listen(port uint16) (*net.TCPListener, error) {
	if port != 0 {
		return listenOn(port)
	}
	for _, n := range rand.Perm(egress.LastPagePort - egress.FirstPagePort + 1) {
		l, err := listenOn(egress.FirstPagePort + uint16(n))
		if !errors.Is(err, errTaken) {
			return l, err
		}
	}
	return nil, fmt.Errorf("no port of 127.0.0.1 from %d to %d is free", egress.FirstPagePort, egress.LastPagePort)
}

func listenOn(port uint16) (*net.TCPListener, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
	if errors.Is(err, unix.EADDRINUSE) {
		err = errTaken
	}
	if err != nil {
		return nil, fmt.Errorf("listening on 127.0.0.1:%d: %w", port, err)
	}
	return l, nil
}

// Server returns a server for pages, with bounds on what others may cost it.
func Server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: WriteTime, IdleTimeout: headerTime,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(io.Discard, "", 0), // it would quote what strangers send
	}
	s.SetKeepAlivesEnabled(false) // whoever has been answered makes room
	return s
}

// Limit bounds the connections of a listener.
func Limit(l net.Listener) net.Listener { return netutil.LimitListener(l, MaxConns) }

// Names are the two that a browser may know a server by.
type Names [2]string

// NamesAt returns those of the server on a port.
func NamesAt(port int) Names {
	return Names{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("localhost:%d", port)}
}

// Has reports whether a request is for the server. An attacker can have another name resolved to 127.0.0.1, and his
// page would be of the same origin.
func (n Names) Has(host string) bool { return host == n[0] || host == n[1] }

// Guard sets what every answer has. The policy is the Content-Security-Policy of a page.
func Guard(h http.Header, policy string) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Not no-referrer: with that a browser sends "Origin: null" with the page's own form (Fetch, 3.2), as it does with
	// one of a frame that hides where it is from. Another host gets no referrer by this either.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that know no frame-ancestors
}

// Digest returns how a Content-Security-Policy names a style or script.
func Digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// Refuse answers with words.
func Refuse(w http.ResponseWriter, code int, words string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, words)
}

// Is reports whether a header that browsers set has one of some values, or is not there.
func Is(h http.Header, name string, want ...string) bool {
	got := h.Values(name)
	if len(got) == 0 {
		return true
	}
	for _, w := range want {
		if len(got) == 1 && got[0] == w {
			return true
		}
	}
	return false
}

// Navigated reports whether a browser loads the page itself, not a part of another one: an image, a frame, a script.
// Browsers say so to loopback (Fetch Metadata); what is none says nothing, and needs what the link has.
func Navigated(h http.Header) bool {
	return Is(h, "Sec-Fetch-Dest", "document") && Is(h, "Sec-Fetch-Mode", "navigate")
}

// Own reports whether a browser sends the page's own form: the Origin is the page's, which no other page can have sent.
func Own(r *http.Request) bool {
	return FromOwnPage(r) && Navigated(r.Header)
}

// FromOwnPage reports whether a script or a form of the page itself has sent a request.
func FromOwnPage(r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	origin := r.Header.Values("Origin")
	return len(origin) == 1 && origin[0] == scheme+r.Host && Is(r.Header, "Sec-Fetch-Site", "same-origin")
}

// ErrForm is the error of a form that a page does not have.
var ErrForm = errors.New("the form is not the one of this page")

// ReadForm reads a form of so many bytes at most. Each of its fields is among those named, and stands in it once.
func ReadForm(w http.ResponseWriter, r *http.Request, most int64, fields ...string) (map[string]string, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.Header.Get("Content-Encoding") != "" {
		return nil, ErrForm
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	form := map[string]string{}
	for _, name := range fields {
		if values := r.PostForm[name]; len(values) == 1 {
			form[name] = values[0]
		}
	}
	if len(form) != len(r.PostForm) {
		return nil, ErrForm
	}
	return form, nil
}

// Unreadable answers a form that cannot be read. The words of others may quote it, and so a secret: those of known
// errors alone are told.
func Unreadable(w http.ResponseWriter, before string, err error, known ...error) {
	code, words := http.StatusBadRequest, "the form cannot be read"
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		code = http.StatusRequestEntityTooLarge
	}
	for _, k := range append(known, ErrForm) {
		if errors.Is(err, k) {
			words = k.Error()
		}
	}
	w.Header().Set("Connection", "close") // or net/http would wait for the rest
	Refuse(w, code, before+words)
}

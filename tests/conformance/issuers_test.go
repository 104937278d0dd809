package conformance

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/pfar/pfar/tests/internet"
)

// The suite's servers for signing in are on http://localhost, and pfar signs in nowhere without encryption. So each of
// them gets a name, and TLS before it. All that changes is http://localhost:PORT, in both directions, wherever it stands;
// the suite judges all else as it is.
const domain = "judge.example"

// maxOrigins is how many servers a scenario may have.
const maxOrigins = 8

// origins are the suite's servers behind their names.
type origins struct {
	mu    sync.Mutex // guards ports
	ports []string   // of localhost; the name has the index
}

func nameOf(i int) string { return fmt.Sprintf("s%d.%s", i, domain) }

// allNames are those that the servers may get.
func allNames() (names []string) {
	for i := range maxOrigins {
		names = append(names, nameOf(i))
	}
	return names
}

// local and named are an origin as it stands in text, and in a query or a form.
var (
	local = regexp.MustCompile(`http(://|%3A%2F%2F)localhost(:|%3A)([0-9]{1,5})`)
	named = regexp.MustCompile(`https(://|%3A%2F%2F)s([0-9])\.` + regexp.QuoteMeta(domain))
)

// outward puts names in the place of ports, and gives out a name where there is none.
func (o *origins) outward(text string) string {
	return local.ReplaceAllStringFunc(text, func(s string) string {
		m := local.FindStringSubmatch(s)
		return "https" + m[1] + nameOf(o.index(m[3]))
	})
}

func (o *origins) index(port string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, p := range o.ports {
		if p == port {
			return i
		}
	}
	o.ports = append(o.ports, port)
	return len(o.ports) - 1
}

// inward does the reverse.
func (o *origins) inward(text string) string {
	return named.ReplaceAllStringFunc(text, func(s string) string {
		m := named.FindStringSubmatch(s)
		i, _ := strconv.Atoi(m[2])
		colon := ":"
		if m[1] != "://" {
			colon = "%3A"
		}
		return "http" + m[1] + "localhost" + colon + o.port(i)
	})
}

// port is the one behind a name; "0", where nothing listens, if nobody has it.
func (o *origins) port(i int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i >= len(o.ports) {
		return "0"
	}
	return o.ports[i]
}

// serve has TLS before the servers, on all addresses, and returns the certificate of who vouches for it.
func (o *origins) serve() (authority []byte, err error) {
	authority, certificate, err := internet.Certificates(allNames()...)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, certificate)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return nil, err
	}
	go http.Serve(l, &httputil.ReverseProxy{
		Rewrite: o.rewrite, ModifyResponse: o.answer, FlushInterval: -1,
	})
	return authority, nil
}

func (o *origins) rewrite(r *httputil.ProxyRequest) {
	host, _, err := net.SplitHostPort(r.In.Host)
	if err != nil {
		host = r.In.Host
	}
	i, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(host, "s"), "."+domain))
	at := "localhost:" + o.port(i)
	r.SetURL(&url.URL{Scheme: "http", Host: at})
	r.Out.URL.RawQuery = o.inward(r.In.URL.RawQuery)
	r.Out.Host = at
	r.Out.Header.Del("Accept-Encoding")
	for _, values := range r.Out.Header {
		for i := range values {
			values[i] = o.inward(values[i])
		}
	}
	if r.In.Body == nil {
		return
	}
	b, _ := io.ReadAll(r.In.Body)
	text := o.inward(string(b))
	r.Out.Body, r.Out.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// answer leaves a stream as it is: it has no end before which it could be changed, and no addresses.
func (o *origins) answer(r *http.Response) error {
	for _, values := range r.Header {
		for i := range values {
			values[i] = o.outward(values[i])
		}
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		return nil
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	b = []byte(o.outward(string(b)))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	r.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

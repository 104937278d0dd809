package e2e

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestUpstreamProxy runs pfar where the only way out is a proxy of the network, with a password. Programs in the
// sandbox know nothing of it.
func TestUpstreamProxy(t *testing.T) {
	t.Parallel()
	const password = "hunter2-of-the-proxy"
	l := listenApart(t)
	type asked struct{ method, host, authorization string }
	seen := make(chan asked, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewReader(c)
				r, err := http.ReadRequest(lines)
				if err != nil {
					return
				}
				user, secret, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
				seen <- asked{r.Method, r.Host, user + ":" + secret}
				c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n"))
				if line, err := lines.ReadString('\n'); err == nil {
					c.Write([]byte("through the proxy: " + line))
				}
			}()
		}
	}()
	p := prepare(t, map[string]string{"clients.hcl": "allowed_domains = [\"api.allowed.example:7777\"]\n" + declare(program(t, "clients"), nil, "")})
	p.env = append(p.env, "HTTPS_PROXY=http://robot:"+password+"@"+l.Addr().String(), "NO_PROXY=")
	p.up()
	p.await("clients running", soon, func(r control.Report) bool { return server(r, "clients").State == control.Running })
	c := &clients{p: p}
	got := c.run(p.client("/mcp"), false, "go", "tcp", "api.allowed.example:7777")
	if want := "through the proxy: hello\n"; !strings.HasPrefix(got.Wrote, want) { // and then how long it took
		t.Errorf("the program wrote %q, want %q", got.Wrote, want)
	}
	if got, want := <-seen, (asked{http.MethodConnect, "api.allowed.example:7777", "robot:" + password}); got != want {
		t.Errorf("the proxy was asked %+v, want %+v", got, want)
	}
	assertSecretNowhere(t, p, password)
}

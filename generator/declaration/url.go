package declaration

import (
	"net/netip"
	neturl "net/url"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
)

// url reads the address of a remote server. What it refuses it does not repeat: people paste passwords into URLs.
func (d *launch) url(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	if strings.ContainsAny(s, "@?") || block.SecretWithin(s) {
		d.Hidden.Add(f.Val.At)
	}
	fault := func(format string, args ...any) {
		d.Problem(f.Val.At, "Invalid URL", format+" Write "+f.Example+".", args...)
	}
	u, err := neturl.Parse(s)
	switch {
	case err != nil:
		fault("The value is no URL.")
	case u.User != nil || strings.Contains(u.Host, "@"):
		fault("The URL holds a user name or password, which logs would show. Put the token into auth.")
	case u.Scheme != "https" && u.Scheme != "http":
		fault("The URL begins with neither https:// nor http://.")
	case u.Hostname() == "":
		fault("The URL has no host.")
	case u.Fragment != "":
		fault("The URL has a fragment (#...), which is never sent.")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		fault("http sends the token in the clear, so it is only for loopback addresses of this machine.")
	default:
		d.server.URL = s
		d.allowURL(f, u)
	}
}

// allowURL adds the host of a remote server to its allowlist.
func (d *launch) allowURL(f *block.Field, u *neturl.URL) {
	host, port := u.Hostname(), u.Port()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	e, err := egress.ParseEndpoint(host + ":" + port)
	if err != nil {
		d.Problem(f.Val.At, "Invalid URL", "The URL has a host to which pfar cannot connect: %s.", block.Escape(err.Error()))
		return
	}
	d.remote = &e
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

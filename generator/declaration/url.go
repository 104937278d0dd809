package declaration

import (
	neturl "net/url"
	"slices"
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
		fault("The value is not a URL.")
	case u.User != nil || strings.Contains(u.Host, "@"):
		fault("The URL holds a user name or password, which logs would show. Put the token into auth.")
	case u.Scheme != "https" && u.Scheme != "http":
		fault("The URL begins with neither https:// nor http://.")
	case u.Hostname() == "":
		fault("The URL has no host.")
	case u.Fragment != "":
		fault("The URL has a fragment (#...), which is never sent.")
	default:
		d.server.URL = s
		d.allowURL(f, u)
	}
}

// insecure reads why a remote server is reached without encryption.
func (d *launch) insecure(f *block.Field) {
	d.server.Insecure, _ = d.Line(f)
}

// ca reads the file of authorities that a remote server is verified by.
func (d *launch) ca(f *block.Field) {
	if s, ok := d.Line(f); ok && d.absolute(f.Val) {
		d.server.CA = s
	}
}

// checkCA judges whether there is a certificate that ca could be for.
func (d *launch) checkCA() {
	f, ok := d.Given["ca"]
	if !ok || d.remote == nil || !d.elsewhere() {
		return
	}
	switch {
	case !d.encrypted:
		d.Problem(f.At, "Nothing to verify", "url begins with http://, so the server shows no certificate. "+
			"Write https://, or remove ca.")
	case d.remote.Host == "":
		d.Problem(d.Given["url"].Val.At, "Address as a host", "The host of url is an address, and ca is for "+
			"certificates of names. Write the host's name, or remove ca.")
	}
}

// checkInsecure judges whether url may begin with http://.
func (d *launch) checkInsecure() {
	if d.remote == nil || !d.elsewhere() { // what is wrong with url is said already
		return
	}
	f, excused := d.Given["insecure"]
	local := d.loopback()
	switch at := d.Given["url"].Val.At; {
	case excused && (d.encrypted || local):
		d.Problem(f.At, "Nothing to excuse", "insecure is for a url that begins with http:// and leads to "+
			"another machine. Remove it.")
	case excused && d.server.Insecure != "":
		d.Caution(f.At, "Not encrypted", "Everybody on the way to %s can read and change what goes there. Write https:// "+
			"and remove insecure as soon as the server has a certificate.", block.Quote(d.remote.String()))
	case !excused && !d.encrypted && !local && !d.meant["insecure"]:
		d.Problem(at, "Invalid URL", "Everybody on the way could read and change what http:// carries. Write https://, "+
			"or, for development, add insecure = \"REASON\".")
	}
}

// loopback reports whether url leads to the machine, or the sandbox, that it is asked for in.
func (d *launch) loopback() bool {
	return d.remote.Prefix.IsValid() && d.remote.Prefix.Addr().IsLoopback()
}

// checkPort judges the url of a server that listens in its own sandbox, or at a socket.
func (d *launch) checkPort() {
	f, ok := d.Given["url"]
	if !ok || d.remote == nil || d.elsewhere() || d.server.Transport == Stdio || d.server.Transport == Pipe {
		return
	}
	switch {
	case d.server.Transport == UDS && (d.encrypted || !d.loopback()):
		d.Problem(f.Val.At, "Invalid URL", "Of url, a server at a socket needs the path alone. Write url = "+
			"\"http://localhost/mcp\", with its path.")
	case d.server.Transport == UDS:
	case !d.loopback():
		key := "command"
		if _, ok := d.Given[key]; !ok {
			key = "package"
		}
		d.excludes(key, true, "A server on another machine is not started here. Remove "+key+", or write url = "+
			"\"http://127.0.0.1:PORT/mcp\" for a port at which the command listens, or transport = \"stdio\".")
	case slices.Contains([]uint16{egress.ProxyPort, egress.RedirectPort, egress.ResolverPort}, d.remote.Port):
		d.Problem(f.Val.At, "Invalid URL", "In each sandbox, something of pfar's own listens at port %d. Have the server "+
			"listen at another one, such as 3000.", d.remote.Port)
	case d.encrypted:
		d.Problem(f.Val.At, "Invalid URL", "The port lies in the sandbox of the server, where nobody else listens in. "+
			"Write http://.")
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
	d.remote, d.encrypted = &e, u.Scheme == "https"
}
